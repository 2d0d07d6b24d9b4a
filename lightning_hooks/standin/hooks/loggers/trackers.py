"""mmcv's experiment loggers: an old subclass has the client and delivers at once."""

from __future__ import annotations

import lightning_hooks
from lightning_hooks.engine.driver.ownership import is_ours
from lightning_hooks.loggers.trackers.base import TrackerHook

__all__ = [
    "ClearMLLoggerHook",
    "DvcliveLoggerHook",
    "MlflowLoggerHook",
    "NeptuneLoggerHook",
    "TensorboardLoggerHook",
    "WandbLoggerHook",
]


class _SynchronousSubclass(TrackerHook):
    """Base of trackers that deliver synchronously in a user's subclass.

    Such a subclass uses the client (``self.wandb.run``, ``self.writer``) right after
    ``super().before_run(runner)`` and ``super().log(runner)``, as in mmcv. It waits for at most
    ``timeout`` seconds.
    """

    @property
    def synchronous(self) -> bool:  # type: ignore[override]
        """Whether the class is a user's subclass."""
        return not is_ours(self)


class ClearMLLoggerHook(_SynchronousSubclass, lightning_hooks.ClearMLLoggerHook):
    """:class:`lightning_hooks.ClearMLLoggerHook`; an old subclass has ``self.task`` at once."""


class DvcliveLoggerHook(_SynchronousSubclass, lightning_hooks.DvcliveLoggerHook):
    """:class:`lightning_hooks.DvcliveLoggerHook`; an old subclass has ``self.dvclive`` at once."""


class MlflowLoggerHook(_SynchronousSubclass, lightning_hooks.MlflowLoggerHook):
    """:class:`lightning_hooks.MlflowLoggerHook`; for an old subclass the run is there at once."""


class NeptuneLoggerHook(_SynchronousSubclass, lightning_hooks.NeptuneLoggerHook):
    """:class:`lightning_hooks.NeptuneLoggerHook`; an old subclass has ``self.run`` at once."""


class TensorboardLoggerHook(_SynchronousSubclass, lightning_hooks.TensorboardLoggerHook):
    """:class:`lightning_hooks.TensorboardLoggerHook`; an old subclass has ``self.writer``."""


class WandbLoggerHook(_SynchronousSubclass, lightning_hooks.WandbLoggerHook):
    """:class:`lightning_hooks.WandbLoggerHook`; an old subclass has ``self.wandb.run`` at once."""
