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

from lightning_hooks.utils.arguments import check_int

__all__ = ["TestHook"]


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

        hook = TestHook("model.yaml", logperiod=10, num_warmup=5)
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

    Starting and stopping a timer synchronizes the device. ``iter`` is the number of stops of the
    timer ``iter``.

    Args:
        cfg_filename: Name at the start of the lines.
        logperiod: Number of iterations between two lines.
        num_warmup: Number of first calls of every timer left out of the average.
    """

    hook_dialect = "pet"
    __test__ = False  # for pytest
    default_timers = ("iter", "data", "infer", "post")

    def __init__(self, cfg_filename: str = "", logperiod: int = 10, num_warmup: int = 5) -> None:
        check_int("logperiod", logperiod, 1)
        check_int("num_warmup", num_warmup, 0)
        self.cfg_filename = str(cfg_filename)
        self.logperiod = logperiod
        self.num_warmup = num_warmup
        self.iter = 0
        self.timers: dict[str, _Timer] = {}
        for name in self.default_timers:
            self.add_timer(name)

    # -- timers ----------------------------------------------------------------------------

    def add_timer(self, name: str) -> None:
        """Add a timer, with methods ``<name>_tic()`` and ``<name>_toc()``.

        Raises:
            ValueError: for the name of a timer, or a name that is no identifier.
        """
        if name in self.timers:
            raise ValueError(f"the timer {name!r} exists already")
        if not name.isidentifier():
            raise ValueError(f"name must be a valid identifier, got {name!r}")
        self.timers[name] = _Timer(self.num_warmup)

    def reset_timer(self, name: str | None = None) -> None:
        """Reset a timer, or all timers, to zero."""
        for each in [*self.timers] if name is None else [name]:
            self._timer(each)
            self.timers[each] = _Timer(self.num_warmup)

    def tic(self, name: str) -> None:
        """Start a timer; a new name adds a timer."""
        if name not in self.timers:
            self.add_timer(name)
        self.wait()
        self.timers[name].began = time.perf_counter()

    def toc(self, name: str) -> float:
        """Stop a timer; return its average in seconds.

        Raises:
            ValueError: for an unknown name.
            RuntimeError: for a stopped timer.
        """
        timer = self._timer(name)
        if timer.began is None:
            raise RuntimeError(f"toc({name!r}) without tic({name!r})")
        self.wait()
        timer.stop(timer.began)
        if name == "iter":
            self.iter += 1
        return timer.average

    def wait(self) -> None:
        """Wait until the GPU has finished its work."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()

    def average(self, name: str) -> float:
        """Return the average seconds of a timer; during the warm-up, the last seconds."""
        return self._timer(name).average

    def _timer(self, name: str) -> _Timer:
        if name not in self.timers:
            raise ValueError(f"no timer {name!r}; known: {', '.join(self.timers)}")
        return self.timers[name]

    def __getattr__(self, name: str) -> Any:
        timer, _, verb = name.rpartition("_")
        if timer and verb in ("tic", "toc"):
            return functools.partial(getattr(self, verb), timer)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- lines -----------------------------------------------------------------------------

    def log_stats(
        self,
        cur: int,
        start: int,
        end: int,
        total: int,
        ims_per_gpu: int = 1,
        suffix: str | None = None,
        log_all: bool = False,
    ) -> str | None:
        """Log a line every ``logperiod`` iterations and after the last; return the line.

        Args:
            cur: Index of the iteration, from 0.
            start: Index of this process's first image.
            end: Index after this process's last image.
            total: Number of images of all processes.
            ims_per_gpu: Number of images of an iteration.
            suffix: Text at the end of the line.
            log_all: Whether to show timers added by the user too.
        """
        done, images = min((cur + 1) * ims_per_gpu, end - start), end - start
        if (cur + 1) % self.logperiod and done < images:
            return None
        added = [name for name, timer in self.timers.items() if timer.calls] if log_all else []
        shown = dict.fromkeys((*self.default_timers, *added))
        parts = " + ".join(f"{n} {self.average(n):.3f}s" for n in shown if n != "iter")
        rest = (images - done) / ims_per_gpu * self.average("iter")
        line = (
            f"[Testing][range:{start + 1}-{end} of {total}][{done}/{images}]"
            f"[{self.average('iter'):.3f}s = {parts}]"
            f"[eta: {datetime.timedelta(seconds=int(rest))}]"
        )
        line = f"{self.cfg_filename} {line}" if self.cfg_filename else line
        line = f"{line} {suffix}" if suffix else line
        logging.getLogger("lightning_hooks").info(line)
        return line

    # -- as a callback ---------------------------------------------------------------------

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Reset all timers."""
        self.iter = 0
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
