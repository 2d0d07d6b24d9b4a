"""Let several hooks write files of the same names into one directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning as L

from lightning_hooks.hooks.checkpoint.model_checkpoint import ModelCheckpointHook
from lightning_hooks.storage import checkpoints
from lightning_hooks.storage.checkpoints import Target
from lightning_hooks.storage.manifest import ChooseOld

__all__ = ["SharedNames"]


class SharedNames(ModelCheckpointHook):
    """Keep out of the files of other hooks: each has a series of its own in the manifest.

    A file that several hooks want at one moment is written by the first of them; it goes when it
    is superseded in all their series.
    """

    interval: int
    max_keep_ckpts: int
    filename_tmpl: str
    _series: str
    _others: Sequence[SharedNames] = ()
    """The other hooks that write files of the same names."""
    _written: tuple[str, int] | None = None
    """The file last written, if there are others: its path and the iterations."""

    def _find_others(self, runner: Any) -> None:
        """Find the other hooks, and name the series."""
        place = self.filename_tmpl, self.directory(runner)
        hooks = [hook for hook in runner.hooks if isinstance(hook, SharedNames)]
        same = [h for h in hooks if (h.filename_tmpl, h.directory(runner)) == place]
        self._others = [hook for hook in same if hook is not self]
        self._written = None
        self._series = self.filename_tmpl
        if self._others:  # by what they keep: a resumed run may have them in another order
            self._series += f" every {self.interval}, {self.max_keep_ckpts} kept"

    def _shares_file(
        self, trainer: L.Trainer, path: str, target: Target, choose_old: ChooseOld | None
    ) -> bool:
        """Keep the file that another hook has just written there, if one has; return whether."""
        self._written = path, self._runner.iter
        for other in self._others:
            if other._written == self._written and other.save_optimizer >= self.save_optimizer:
                if other._background is not None:
                    other._background.wait()
                if trainer.is_global_zero:
                    self._report_deleted(target.directory, checkpoints.claim(target, choose_old))
                    if self.on_saved is not None:
                        self.on_saved(path)
                return True
        return False
