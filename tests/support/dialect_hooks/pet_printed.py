"""Pet's hooks and test timers, with the conditions, attributes and calls of Pet's classes.

Source: the hooks and ``TestHook`` of Pet, by Beijing University of Posts and Telecommunications
(``pet/lib/utils``), rewritten from Pet's documentation; the names come from the module ``pet.lib``.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import time
from collections import Counter

import torch
from pet.lib import (
    EventStorage,
    EventWriter,
    Timer,
    TrainHook,
    get_bn_modules,
    get_event_storage,
    logging_rank,
    update_bn_stats,
)


def clock(seconds):
    return str(datetime.timedelta(seconds=int(seconds)))


class Rows(EventWriter):
    """A writer that stores records in a list."""

    def __init__(self):
        self.rows = []

    def write(self, epoch=None, max_epoch=None, **kwargs):
        storage = get_event_storage()
        latest = storage.latest_with_smoothing_hint(2)
        kept = {name: v for name, v in latest.items() if name not in ("time", "data_time")}
        self.rows.append((storage.iter, epoch, max_epoch, kept))


class PeriodicWriter(TrainHook):
    def __init__(self, writers, max_iter, display_iter=20):
        self.writers = writers
        for writer in writers:
            assert isinstance(writer, EventWriter), writer
        self.max_iter = max_iter
        self.display_iter = display_iter

    def after_step(self, storage, epoch=None, max_epoch=None, **kwargs):
        iteration = storage.iter
        if epoch is not None:
            storage.put_scalar("epoch", epoch, smoothing_hint=False)
            iteration = storage.iter % self.max_iter
        if (iteration + 1) % self.display_iter == 0 or iteration == self.max_iter - 1:
            for writer in self.writers:
                writer.write(epoch=epoch, max_epoch=max_epoch)

    def after_train(self, **kwargs):
        for writer in self.writers:
            writer.close()


class IterationTimer(TrainHook):
    def __init__(self, max_iter, start_iter, warmup_iter, ignore_warmup_time):
        self.warmup_iter = warmup_iter
        self.ignore_warmup_time = ignore_warmup_time
        self.max_iter = max_iter
        self.start_iter = start_iter
        self.step_timer = Timer()

    def before_train(self, **kwargs):
        self.start_time = time.perf_counter()
        self.total_timer = Timer()
        self.total_timer.pause()

    def after_train(self, storage, **kwargs):
        total_time = time.perf_counter() - self.start_time
        in_steps = self.total_timer.seconds()
        num_iter = storage.iter + 1 - self.start_iter - self.warmup_iter
        if num_iter > 0 and in_steps > 0:
            speed = in_steps / num_iter
            logging_rank(
                f"Overall training speed: {num_iter} iterations in {clock(in_steps)} "
                f"({speed:.4f} s / it)"
            )
        on_hooks = clock(total_time - in_steps)
        logging_rank(f"Total training time: {clock(total_time)} ({on_hooks} on hooks)")

    def before_step(self, **kwargs):
        self.step_timer.reset()
        self.total_timer.resume()

    def after_step(self, storage, **kwargs):
        iter_done = storage.iter - self.start_iter + 1
        if iter_done >= self.warmup_iter or not self.ignore_warmup_time:
            storage.put_scalars(time=self.step_timer.seconds())
        else:
            self.start_time = time.perf_counter()
            self.total_timer.reset()
        self.total_timer.pause()


class LRScheduler(TrainHook):
    def __init__(self, optimizer, scheduler):
        self.optimizer, self.scheduler = optimizer, scheduler
        largest = max(len(g["params"]) for g in optimizer.param_groups)
        if largest == 1:
            rates = Counter([g["lr"] for g in optimizer.param_groups])
            rate = rates.most_common()[0][0]
            same = (i for i, g in enumerate(optimizer.param_groups) if g["lr"] == rate)
        else:
            groups = enumerate(optimizer.param_groups)
            same = (i for i, g in groups if len(g["params"]) == largest)
        self._best_param_group_id = next(same)

    def after_step(self, storage, **kwargs):
        lr = self.optimizer.param_groups[self._best_param_group_id]["lr"]
        storage.put_scalar("lr", lr, smoothing_hint=False)
        self.scheduler.step()


class PreciseBN(TrainHook):
    def __init__(self, precise_bn_args, period, num_iter, max_iter):
        self.data_loader, self.model, self.device = precise_bn_args
        self.num_iter, self.period, self.max_iter = num_iter, period, max_iter
        self.disabled = len(get_bn_modules(self.model)) == 0
        self.data_iter = None

    def after_step(self, storage, **kwargs):
        is_final = storage.iter == self.max_iter
        if is_final or (self.period > 0 and storage.iter % self.period == 0):
            self.update_stats()

    def update_stats(self):
        if self.disabled:
            return
        if self.data_iter is None:
            self.data_iter = iter(self.data_loader)

        def batches():
            for _ in itertools.count(1):
                yield next(self.data_iter)

        with EventStorage():  # drops scalars put by the model meanwhile
            logging_rank("Running precise-BN for ", self.num_iter, " iterations...")
            update_bn_stats(self.model, batches(), self.device, self.num_iter)


class Recall(TrainHook):
    """A project's own, with the loop's keywords."""

    def __init__(self):
        self.calls, self.losses = [], []

    def before_train(self, **kwargs):
        self.calls.append(("before_train", sorted(kwargs)))

    def before_step(self, storage, **kwargs):
        self.calls.append(("before_step", storage.iter, sorted(kwargs)))

    def after_step(self, storage, **kwargs):
        more = {name: v for name, v in kwargs.items() if name in ("epoch", "max_epoch")}
        self.calls.append(("after_step", storage.iter, more))
        self.losses.append(storage.latest()["total_loss"])

    def after_train(self, storage, **kwargs):
        self.calls.append(("after_train", storage.iter, sorted(kwargs)))


class TestHook:
    """The timers of a test."""

    __test__ = False

    def __init__(self, cfg_filename, log_period=10, num_warmup=5):
        self.cfg_filename, self.log_period, self.num_warmup = cfg_filename, log_period, num_warmup
        self.default_timers = ("iter", "data", "infer", "post")
        self.timers = {name: Timer() for name in self.default_timers}
        self.iter = 0

    def wait(self):
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def add_timer(self, name):
        if name in self.timers:
            raise ValueError(name)
        timer = Timer()
        self.timers[name] = timer
        return timer

    def tic(self, name):
        if name not in self.timers:
            self.add_timer(name)
        self.timers[name].tic()

    def toc(self, name):
        if name not in self.timers:
            raise ValueError(name)
        return self.timers[name].toc(average=False)

    def reset_timer(self):
        for timer in self.timers.values():
            timer.reset()

    def __getattr__(self, name):
        timer, _, verb = name.rpartition("_")
        if verb not in ("tic", "toc"):
            raise AttributeError(name)
        return functools.partial(getattr(self, verb), timer)

    def iter_tic(self):
        self.tic("iter")

    def iter_toc(self):
        self.iter += 1
        if self.iter == self.num_warmup:
            self.reset_timer()
            self.tic("iter")
        return self.toc("iter")

    def log_stats(self, cur, start, end, total, ims_per_gpu=1):
        if (cur + 1) % self.log_period == 0:
            eta_seconds = self.timers["iter"].average_time * (end - cur - 1)
            logging_rank(
                "[Testing][range:{}-{} of {}][{}/{}][{:.3f}s = {:.3f}s][eta: {}]".format(
                    *(start + 1, end, total, cur + 1, end - start),
                    self.timers["iter"].average_time,
                    self.timers["infer"].average_time,
                    datetime.timedelta(seconds=int(eta_seconds)),
                )
            )
