"""The runner of a run counted in iterations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["IterLoader", "IterRunner"]


class IterLoader:
    """The hooks' loader in a run by iteration: endless, with the passes counted."""

    def __init__(self, runner: Runner, dataloader: Any) -> None:
        self._dataloader = dataloader
        self._runner = runner
        self._own: Any = None

    @property
    def epoch(self) -> int:
        """Passes over the data done."""
        return int(self._runner.trainer.current_epoch)

    def __len__(self) -> int:
        return len(self._dataloader)

    def __next__(self) -> Any:
        """Return a batch for a hook, from a separate iterator: training misses no batch."""
        try:
            return next(self._own)
        except (TypeError, StopIteration):
            self._own = iter(self._dataloader)
            return next(self._own)


class IterRunner(Runner):
    """A run counted in iterations: mmcv's IterBasedRunner.

    ``epoch`` counts passes over the loader as mmcv does: the first batch of a pass still shows
    the pass before. ``inner_iter`` counts since the last validation; 0 without validations.

    Note:
        Departure from mmcv: after a resume ``epoch`` goes on (mmcv starts again from 0).
    """

    twin = "IterBasedRunner"
    filename_tmpl = "iter_{}.pth"
    counts_epochs = False
    last_val_iter = 0
    _iter_loaders: Mapping[int, IterLoader] = MappingProxyType({})
    _epoch = 0
    _max_epochs: int | None = None
    _own_max_iters: int | None = None

    @property
    def _max_iters(self) -> int | None:
        if self._own_max_iters is not None:
            return self._own_max_iters
        if self.trainer.max_steps >= 0:
            # where hooks own backward, the driver ends the run after so many iterations
            if self.hooks_step:
                return self.trainer.max_steps
            return progress.iterations_of_steps(self.trainer, self.trainer.max_steps)
        epochs, batches = self.trainer.max_epochs, self.trainer.num_training_batches
        if epochs is None or epochs < 0 or batches == float("inf"):
            return None
        return epochs * int(batches)

    @_max_iters.setter
    def _max_iters(self, value: int | None) -> None:
        self.renew()
        self._own_max_iters = value
        if value is not None:
            progress.set_max_steps(self.trainer, value)

    # -- called by the driver ----------------------------------------------------------------

    def restore_counters(self, entry: dict[str, Any], *, closed: bool) -> None:
        """Go on counting from the last validation."""
        self.last_val_iter = entry.get("last_val_iter", self.iter)

    def begin_run(self) -> None:
        """Count the passes over the data from Lightning's epochs."""
        self._epoch = self.trainer.current_epoch

    def begin_batch(self, batch_idx: int) -> None:
        """Set the counters for the ``batch_idx``-th training batch of a pass."""
        # mmcv reads the loader's passes before fetching the batch
        self._epoch = max(self.trainer.current_epoch - (batch_idx == 0), 0)
        validates = self.trainer.enable_validation
        self._inner_iter = self.iter - self.last_val_iter if validates else 0

    def ends_with_batch(self) -> bool:
        """Whether the current batch is the run's last."""
        return self.max_iters is not None and self.iter + 1 >= self.max_iters

    def end_run(self) -> None:
        """Count the last batch, as mmcv does."""
        self._inner_iter += 1

    @property
    def data_loader(self) -> Any:
        """The current loader as mmcv's endless IterLoader."""
        loader = Runner.data_loader.fget(self)  # type: ignore[attr-defined]
        if id(loader) not in self._iter_loaders:
            self._iter_loaders = {**self._iter_loaders, id(loader): IterLoader(self, loader)}
        return self._iter_loaders[id(loader)]

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        Runner.data_loader.fset(self, getattr(value, "_dataloader", value))  # type: ignore[attr-defined]

    @property
    def _file_number(self) -> int:
        return self.iter + 1
