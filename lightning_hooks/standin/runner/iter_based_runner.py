"""mmcv's runner that counts iterations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from lightning_hooks.engine.runner.runner import IterRunner
from lightning_hooks.standin.runner.base_runner import BaseRunner
from lightning_hooks.standin.runner.builders import RUNNERS

__all__ = ["IterBasedRunner", "IterLoader"]

AGREEMENT_INTERVAL = 100
"""Iterations between two agreements of the ranks on ``should_stop``, as there are no epochs."""


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
        """Return the next batch, restarting the loader after its last batch."""
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
    """Train iteration by iteration, over endless loaders.

    Takes the arguments of :class:`~lightning_hooks.standin.runner.base_runner.BaseRunner`.

    Note:
        Departures from mmcv: see ``BaseRunner``; ``resume`` restores the best score of
        an evaluation hook, and works without a GPU by default.
    """

    stands_for: ClassVar[Any] = IterRunner
    _epoch: int = 0

    def run(
        self, data_loaders: Any, workflow: Any, max_iters: int | None = None, **kwargs: Any
    ) -> None:
        """Train and validate until ``max_iters`` iterations are trained.

        Args:
            data_loaders: A list of loaders, in the order of the workflow.
            workflow: A list of ``("train", iterations)`` and ``("val", iterations)``, repeated in
                a cycle; each loader continues after its last batch.
            max_iters: Deprecated: an argument of the constructor.
            **kwargs: Arguments for ``train_step``.
        """
        parts = self._parts(data_loaders, workflow, "max_iters", max_iters)
        loop = functools.partial(self._run_iterations, parts, kwargs)
        self._fit(workflow, f"{self._max_iters} iters", loop, self._max_iters)

    def _run_iterations(self, parts: list[tuple[tuple[str, int], Any]], kwargs: Any) -> None:
        self.call_hook("before_run")
        endless = [(part, IterLoader(loader)) for part, loader in parts]
        self.call_hook("before_epoch")
        for mode, loader in self._plan(endless, lambda: self.iter >= self._max_iters):
            getattr(self, mode)(loader, **kwargs)
        self.call_hook("after_epoch")
        self.call_hook("after_run")

    def _begin_part(self) -> None:
        """Count the part's iterations from 0, as mmcv does for a part without any, too."""
        self._inner_iter = 0

    def train(self, data_loader: Any, **kwargs: Any) -> None:
        """Train for an iteration."""
        self._begin_pass("train", data_loader)
        self._epoch = data_loader.epoch
        self._run_batch(next(data_loader), "train", **kwargs)
        self._inner_iter += 1
        self._iter += 1
        if self._engine.driver is not None and self._iter % AGREEMENT_INTERVAL == 0:
            self.agree_to_stop()

    @torch.no_grad()
    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Validate for an iteration."""
        self._begin_pass("val", data_loader)
        self._run_batch(next(data_loader), "val", **kwargs)
        self._inner_iter += 1

    def _run_val_step(self, data_batch: Any, **kwargs: Any) -> Any:
        return self.model.val_step(data_batch, **kwargs)

    # -- checkpoints and hooks ---------------------------------------------------------------

    def save_checkpoint(  # type: ignore[override]  # mmcv's order of arguments
        self,
        out_dir: str,
        filename_tmpl: str | None = "iter_{}.pth",
        meta: Any = None,
        save_optimizer: Any = True,
        create_symlink: bool = True,
    ) -> None:
        """Write a checkpoint in mmcv's layout and link ``latest.pth`` to it."""
        super().save_checkpoint(out_dir, filename_tmpl, save_optimizer, meta, create_symlink)

    def resume(
        self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = "default"
    ) -> None:
        """Resume from a checkpoint: weights, counters, the best score and optimizers."""
        meta = self._load_for_resume(checkpoint, resume_optimizer, map_location)["meta"]
        self._inner_iter = meta["iter"]  # as in mmcv, until the first part of the workflow
        best = {k: v for k, v in meta.get("hook_msgs", {}).items() if k.startswith("best_")}
        if best:
            own = self.meta or {}
            self.meta = {**own, "hook_msgs": {**own.get("hook_msgs", {}), **best}}
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
