"""SIGTERM on one of several ranks ends all ranks before the same batch.

Lightning's handler calls a collective in the middle of whatever a rank does. Where the signal
reaches one rank alone, or the ranks in different batches, the collectives no longer meet, and the
ranks wait until the time of the process group is over.

Here the handler only notes the signal. The ranks agree where they agree on ``should_stop``, and
rank 0 tells all ranks by the collective that Lightning calls before each batch.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

import lightning as L
from lightning.pytorch.utilities.exceptions import SIGTERMException

from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.lightning_api.private_names import needs

__all__ = ["SharedSigterm", "ends_all_ranks", "share_sigterm"]


def ends_all_ranks(exception: BaseException, trainer: L.Trainer) -> bool:
    """Return whether an exception in training ends all ranks."""
    return trainer.world_size == 1 or isinstance(exception, SIGTERMException)


class SharedSigterm:
    """Whether SIGTERM has reached this rank in a fit, and what comes of the signal.

    Args:
        trainer: The Trainer, of several ranks.
        fit: Undoes the changes.
    """

    received = False
    """Whether the signal has reached this rank."""

    def __init__(self, trainer: L.Trainer, fit: FitChanges) -> None:
        self._trainer, self._fit = trainer, fit
        self._others: list[Any] = []
        self._ends = False

    def take_over(self) -> None:
        """Take the place of Lightning's handler, in front of the handlers of others."""
        lightnings: Any = signal.getsignal(signal.SIGTERM)
        notifier = self._trainer._signal_connector._sigterm_notifier_fn
        handlers = getattr(lightnings, "signal_handlers", [])
        if handlers[:1] != [notifier] or threading.current_thread() is not threading.main_thread():
            return
        self._others = handlers[1:]
        signal.signal(signal.SIGTERM, self._handle)
        self._fit.callback(self._give_back, lightnings)

    def _give_back(self, lightnings: Any) -> None:
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, lightnings)

    def _handle(self, number: int, frame: Any) -> None:
        """Note the signal; pass it to the ranks that this process has started, and to others."""
        launcher = self._trainer.strategy.launcher
        if not self.received and launcher is not None:
            launcher.kill(number)
        self.received = True
        self.end_all()
        for handler in self._others:
            if callable(handler):
                handler(number, frame)

    def end_all(self) -> None:
        """Have rank 0 end all ranks before the next batch."""
        if self._trainer.is_global_zero and not self._ends:
            self._ends = True
            loop = self._trainer.fit_loop.epoch_loop
            self._fit.patch(loop, "_broadcast_sigterm_tensor", before=self._tell)

    def _tell(self) -> None:
        # not earlier: rank 0 alone would end
        self._trainer._signal_connector.received_sigterm = True


@needs("SIGTERM on one of several ranks")
def share_sigterm(trainer: L.Trainer, fit: FitChanges) -> SharedSigterm:
    """Have SIGTERM on any rank end all ranks; call on all ranks where training begins.

    Returns:
        None if Lightning lacks a private name.
    """
    shared = SharedSigterm(trainer, fit)
    if trainer.world_size > 1:
        shared.take_over()
    return shared
