"""mmcv's runner that counts iterations."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from lightning_hooks.engine.runner.iter_runner import IterRunner
from lightning_hooks.standin.runner.base_runner import BaseRunner
from lightning_hooks.standin.runner.builders import RUNNERS
from lightning_hooks.standin.runner.engine import LastValues, check_workflow

__all__ = ["IterBasedRunner", "IterLoader"]


class IterLoader:
    """An endless iterator over a loader that counts the passes.

    Args:
        dataloader: The loader.
    """

    def __init__(self, dataloader: Any) -> None:
        self._dataloader = dataloader
        self.iter_loader = iter(dataloader)
        self._epoch = 0

    @property
    def epoch(self) -> int:
        """Number of completed passes."""
        return self._epoch

    def __len__(self) -> int:
        return len(self._dataloader)

    def __next__(self) -> Any:
        """Return the next batch, restarting the loader after its last one."""
        try:
            return next(self.iter_loader)
        except StopIteration:
            self._epoch += 1
            sampler: Any = getattr(self._dataloader, "sampler", None)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self._epoch)
            self.iter_loader = iter(self._dataloader)
            return next(self.iter_loader)


@RUNNERS.register_module()
class IterBasedRunner(BaseRunner, IterRunner):
    """Train iteration by iteration, over one or several endless loaders.

    Takes the arguments of :class:`~lightning_hooks.standin.runner.base_runner.BaseRunner`.

    Note:
        Departures from mmcv: those of ``BaseRunner``; ``resume`` works without a GPU by default.
    """

    stands_for: ClassVar[Any] = IterRunner
    log_buffer_class = LastValues
    _epoch: int = 0
    _parts: list[tuple[tuple[str, int], Any]]

    def run(
        self, data_loaders: Any, workflow: Any, max_iters: int | None = None, **kwargs: Any
    ) -> None:
        """Train and validate until ``max_iters`` iterations are trained.

        Args:
            data_loaders: A list of loaders, one for each part of the workflow.
            workflow: A list of ``("train", iterations)`` and ``("val", iterations)``, repeated in
                a cycle; each loader continues where it stopped.
            max_iters: Deprecated: pass it to the constructor.
            **kwargs: Arguments for ``train_step``.
        """
        check_workflow(data_loaders, workflow)
        self._set_limit("max_iters", max_iters)
        self._parts = list(zip(workflow, data_loaders, strict=True))
        self._step_kwargs = kwargs
        loop = functools.partial(self._loop, kwargs)
        self._fit(workflow, f"{self._max_iters} iters", loop)

    # -- a loop of a subclass's own ----------------------------------------------------------

    def _loop(self, kwargs: Any) -> None:
        self.call_hook("before_run")
        self.begin_run()
        self.call_hook("before_epoch")
        while self.iter < self._max_iters:
            for (mode, times), loader in self._parts:
                self._inner_iter = 0
                for _ in range(times):
                    if mode == "train" and self.iter >= self._max_iters:
                        break
                    getattr(self, mode)(loader, **kwargs)
        self.call_hook("after_epoch")
        self.call_hook("after_run")

    def train(self, data_loader: Any, **kwargs: Any) -> None:
        """Train for an iteration, where a subclass has a loop of its own."""
        self.check_loops_itself()
        self._run_batch(self._next_batch(data_loader), "train", **kwargs)
        self._inner_iter += 1
        self._iter += 1

    @torch.no_grad()
    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Validate for an iteration, where a subclass has a loop of its own."""
        self.check_loops_itself()
        self.model.eval()
        self.mode, self.data_loader = "val", data_loader
        self._run_batch(next(data_loader), "val", **kwargs)
        self._inner_iter += 1

    # -- called by the driver ----------------------------------------------------------------

    def open_val_log(self) -> None:
        """Do nothing: as in mmcv, a validation's values are averaged into the next lines."""
        self.train_log = self.log_buffer

    def begin_run(self) -> None:
        """Make the endless loaders, after ``before_run`` and before ``before_epoch``."""
        self._parts = [(part, IterLoader(loader)) for part, loader in self._parts]

    def begin_batch(self, batch_idx: int) -> None:
        """Do nothing: the workflow counts."""

    def end_run(self) -> None:
        """Do nothing: the workflow counts."""

    def ends_with_batch(self) -> bool:
        """Return False: the workflow ends the run."""
        return False

    # -- the workflow ------------------------------------------------------------------------

    def begin_workflow(self) -> None:
        """Do nothing: the batches follow the workflow."""

    go_on = begin_workflow

    def number_of_batches(self) -> int:
        """Return an upper bound: the workflow ends the run."""
        return max(int(self._max_iters) - self.iter, 0) + 1

    def batches(self) -> Iterator[Any]:
        """Yield the training batches of the workflow; run its validations in between."""
        trains = any(mode == "train" for (mode, _), _ in self._parts)
        while self.iter < self._max_iters:
            for (mode, times), loader in self._parts:
                self._inner_iter = 0
                if mode == "val":
                    self.data_loader = loader
                    self._engine.validate(times)
                    self._inner_iter = times
                    continue
                for index in range(times):
                    if self.iter >= self._max_iters:
                        break
                    yield self._next_batch(loader)
                    self._inner_iter = index + 1
            if not trains:
                break
        self.trainer.should_stop = True

    def _next_batch(self, loader: IterLoader) -> Any:
        self.model.train()
        self.mode = "train"
        self.data_loader = loader
        self._epoch = loader.epoch
        return next(loader)

    def _run_val_step(self, data_batch: Any, **kwargs: Any) -> Any:
        return self.model.val_step(data_batch, **kwargs)

    # -- checkpoints and hooks ---------------------------------------------------------------

    def save_checkpoint(  # type: ignore[override]  # mmcv's order of arguments
        self,
        out_dir: str,
        filename_tmpl: str | None = None,
        meta: Any = None,
        save_optimizer: Any = True,
        create_symlink: bool = True,
    ) -> None:
        """Write a checkpoint of mmcv's layout; ``filename_tmpl`` is ``iter_{}.pth`` by default."""
        super().save_checkpoint(out_dir, filename_tmpl, save_optimizer, meta, create_symlink)

    def resume(
        self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = "default"
    ) -> None:
        """Resume from a checkpoint: weights, counters and optimizers."""
        found = self._load_for_resume(checkpoint, map_location)
        self._inner_iter = found["meta"]["iter"]  # as mmcv; until the first part of the workflow
        if resume_optimizer:
            self._resume_optimizers(found)
        self.logger.info(f"resumed from epoch: {self.epoch}, iter {self.iter}")

    def register_training_hooks(  # type: ignore[override]  # mmcv's order of arguments
        self,
        lr_config: Any,
        optimizer_config: Any = None,
        checkpoint_config: Any = None,
        log_config: Mapping[str, Any] | None = None,
        momentum_config: Any = None,
        custom_hooks_config: Any = None,
        **kwargs: Any,
    ) -> None:
        """Add the hooks of a config; policies, checkpoints and loggers count iterations."""
        if log_config is not None:
            hooks = [_by_iteration(config) for config in log_config["hooks"]]
            log_config = {**log_config, "hooks": hooks}
        super().register_training_hooks(
            _by_iteration(lr_config),
            optimizer_config,
            _by_iteration(checkpoint_config),
            log_config,
            momentum_config,
            custom_hooks_config=custom_hooks_config,
            **kwargs,
        )


def _by_iteration(config: Any) -> Any:
    return {"by_epoch": False, **config} if isinstance(config, Mapping) else config
