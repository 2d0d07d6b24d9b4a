"""``TestHook``: Pet's named timers of a test, in a plain loop or as a callback."""

from __future__ import annotations

import datetime
import functools
import logging
import time
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

__all__ = ["TestHook"]

DEFAULT = ("iter", "data", "infer", "post")


class _Timer:
    """The average seconds of a part, without the first calls.

    Args:
        num_warmup: Number of ignored first calls.
    """

    def __init__(self, num_warmup: int) -> None:
        self.began: float | None = None
        self.total, self.calls, self.last = 0.0, 0, 0.0
        self._warmup = num_warmup

    @property
    def average(self) -> float:
        return self.total / self.calls if self.calls else self.last

    def stop(self, began: float) -> None:
        self.last, self.began = time.perf_counter() - began, None
        if self._warmup > 0:
            self._warmup -= 1
        else:
            self.total += self.last
            self.calls += 1


class TestHook(Callback):
    """Times the parts of a test.

    In a plain loop::

        hook = TestHook("model.yaml", logperiod=10, num_warmup=3)
        hook.iter_tic(); hook.data_tic()
        for i, batch in enumerate(loader):
            hook.data_toc(); hook.infer_tic()
            outputs = model(batch)
            hook.infer_toc(); hook.post_tic()
            keep(outputs)
            hook.post_toc(); hook.iter_toc()
            hook.log_stats(i, 0, len(loader), len(loader))
            hook.iter_tic(); hook.data_tic()

    In ``Trainer(callbacks=[hook])`` the hook times ``Trainer.test``: ``data`` is the loading of a
    batch, ``infer`` the test step, ``iter`` both. The module may call ``post_tic`` and
    ``post_toc`` to time the work after inference.

    Starting and stopping a timer synchronizes the device.

    Args:
        cfg_filename: Name at the start of the lines.
        logperiod: Number of iterations between two lines.
        num_warmup: Number of first calls of every timer left out of the average.
    """

    hook_dialect = "pet"
    __test__ = False  # for pytest

    def __init__(self, cfg_filename: str = "", logperiod: int = 10, num_warmup: int = 3) -> None:
        if not isinstance(logperiod, int) or logperiod < 1:
            raise ValueError(f"logperiod must be an int of at least 1, got {logperiod!r}")
        if not isinstance(num_warmup, int) or num_warmup < 0:
            raise ValueError(f"num_warmup must be an int of at least 0, got {num_warmup!r}")
        self.cfg_filename = str(cfg_filename)
        self.logperiod = logperiod
        self.num_warmup = num_warmup
        self.timers: dict[str, _Timer] = {}
        for name in DEFAULT:
            self.add_timer(name)

    # -- timers ----------------------------------------------------------------------------

    def add_timer(self, name: str) -> None:
        """Add a timer, with methods ``<name>_tic()`` and ``<name>_toc()``."""
        if not name.isidentifier():
            raise ValueError(f"name must be a valid identifier, got {name!r}")
        self.timers[name] = _Timer(self.num_warmup)

    def reset_timer(self, name: str | None = None) -> None:
        """Reset a timer, or all timers, to zero."""
        for each in self.timers if name is None else [name]:
            self._timer(each)
            self.add_timer(each)

    def tic(self, name: str) -> None:
        """Start a timer."""
        timer = self._timer(name)
        _synchronize()
        timer.began = time.perf_counter()

    def toc(self, name: str) -> float:
        """Stop a timer; return its average in seconds.

        Raises:
            RuntimeError: for a stopped timer.
        """
        timer = self._timer(name)
        if timer.began is None:
            raise RuntimeError(f"toc({name!r}) without tic({name!r})")
        _synchronize()
        timer.stop(timer.began)
        return timer.average

    def average(self, name: str) -> float:
        """Return the average seconds of a timer; during the warm-up, the last seconds."""
        return self._timer(name).average

    def _timer(self, name: str) -> _Timer:
        if name not in self.timers:
            raise KeyError(f"no timer {name!r}; known: {', '.join(self.timers)}")
        return self.timers[name]

    def __getattr__(self, name: str) -> Any:
        timer, _, verb = name.rpartition("_")
        if verb in ("tic", "toc") and timer in self.__dict__.get("timers", {}):
            return functools.partial(getattr(self, verb), timer)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- lines -----------------------------------------------------------------------------

    def log_stats(
        self,
        cur_idx: int,
        start_ind: int,
        end_ind: int,
        total_num_images: int,
        ims_per_gpu: int = 1,
        suffix: str | None = None,
        log_all: bool = False,
    ) -> str | None:
        """Log a line every ``logperiod`` iterations and after the last; return the line.

        Args:
            cur_idx: Index of the iteration, from 0.
            start_ind: Index of this process's first image.
            end_ind: Index after this process's last image.
            total_num_images: Number of images of all processes.
            ims_per_gpu: Number of images of an iteration.
            suffix: Text at the end of the line.
            log_all: Whether to show timers added by the user too.
        """
        done = min((cur_idx + 1) * ims_per_gpu, end_ind - start_ind)
        if (cur_idx + 1) % self.logperiod and done < end_ind - start_ind:
            return None
        shown = [n for n, t in self.timers.items() if n in DEFAULT or (log_all and t.calls)]
        parts = " + ".join(f"{n} {self.average(n):.3f}s" for n in shown if n != "iter")
        rest = (end_ind - start_ind - done) / ims_per_gpu * self.average("iter")
        line = (
            f"[Testing][range:{start_ind + 1}-{end_ind} of {total_num_images}]"
            f"[{done}/{end_ind - start_ind}][{self.average('iter'):.3f}s = {parts}]"
            f"[eta: {datetime.timedelta(seconds=int(rest))}]"
        )
        line = f"{self.cfg_filename} {line}" if self.cfg_filename else line
        line = f"{line} {suffix}" if suffix else line
        logging.getLogger("lightning_hooks").info(line)
        return line

    # -- as a callback ---------------------------------------------------------------------

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Reset all timers."""
        self.reset_timer()

    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the timers of the first batch."""
        self.tic("iter")
        self.tic("data")

    def on_test_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Stop the timer of loading, and start the timer of the step."""
        self.toc("data")
        self.tic("infer")

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log the step, and start the timers of the next batch."""
        self.toc("infer")
        self.toc("iter")
        batches = trainer.num_test_batches[dataloader_idx]
        if batches != float("inf"):
            self.log_stats(batch_idx, 0, int(batches), int(batches) * trainer.world_size)
        self.tic("iter")
        self.tic("data")


def _synchronize() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
