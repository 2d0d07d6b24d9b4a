"""Pet's five hooks and its timers of a test as their sources have them, on what is ``pet.lib``."""

from __future__ import annotations

import datetime
import itertools
import time
from collections import Counter

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
    """A writer that keeps what it gets."""

    def __init__(self):
        self.rows = []

    def write(self, epoch=None, max_epoch=None, **kwargs):
        storage = get_event_storage()
        latest = storage.latest_with_smoothing_hint(2)
        kept = {name: v for name, v in latest.items() if name not in ("time", "data_time")}
        self.rows.append((storage.iter, epoch, max_epoch, kept))


class PeriodicWriter(TrainHook):
    def __init__(self, writers, max_iter, display_iter=20):
        self._writers = writers
        for writer in writers:
            assert isinstance(writer, EventWriter), writer
        self._max_iter = max_iter
        self._display_iter = display_iter

    def after_step(self, storage, epoch=None, max_epoch=None, **kwargs):
        if storage.iter % self._display_iter == 0 or storage.iter == self._max_iter:
            for writer in self._writers:
                writer.write(epoch=epoch, max_epoch=max_epoch)

    def after_train(self, **kwargs):
        for writer in self._writers:
            writer.close()


class IterationTimer(TrainHook):
    def __init__(self, max_iter, start_iter=1, warmup_iter=3, ignore_warmup_time=False):
        self._warmup_iter = warmup_iter if ignore_warmup_time else 0
        self._start_iter = start_iter
        self._step_timer = Timer()

    def before_train(self, **kwargs):
        self._start_time = time.perf_counter()
        self._total_timer = Timer()
        self._total_timer.pause()

    def after_train(self, storage, **kwargs):
        total_time = time.perf_counter() - self._start_time
        in_steps = self._total_timer.seconds()
        num_iter = storage.iter - self._start_iter - self._warmup_iter
        if num_iter > 0 and in_steps > 0:
            speed = in_steps / num_iter
            logging_rank(
                f"Overall training speed: {num_iter} iterations in {clock(in_steps)} "
                f"({speed:.4f} s / it)"
            )
        on_hooks = clock(total_time - in_steps)
        logging_rank(f"Total training time: {clock(total_time)} ({on_hooks} on hooks)")

    def before_step(self, **kwargs):
        self._step_timer.reset()
        self._total_timer.resume()

    def after_step(self, storage, **kwargs):
        if storage.iter - self._start_iter + 1 > self._warmup_iter:
            storage.put_scalars(time=self._step_timer.seconds())
        else:
            self._start_time = time.perf_counter()
            self._total_timer.reset()
        self._total_timer.pause()


class LRScheduler(TrainHook):
    def __init__(self, optimizer, scheduler):
        self._optimizer, self._scheduler = optimizer, scheduler
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
        lr = self._optimizer.param_groups[self._best_param_group_id]["lr"]
        storage.put_scalar("lr", lr, smoothing_hint=False)
        self._scheduler.step()


class PreciseBN(TrainHook):
    def __init__(self, precise_bn_args, period, num_iter, max_iter):
        model, data_loader, device = precise_bn_args
        self._disabled = len(get_bn_modules(model)) == 0
        if self._disabled:
            logging_rank("PreciseBN is disabled: the model has no BN layers in training mode.")
        self._model, self._data_loader, self._device = model, data_loader, device
        self._period, self._num_iter, self._max_iter = period, num_iter, max_iter
        self._data_iter = None

    def after_step(self, storage, **kwargs):
        is_final = storage.iter == self._max_iter
        if is_final or (self._period > 0 and storage.iter % self._period == 0):
            self.update_stats()

    def update_stats(self):
        if self._disabled:
            return
        if self._data_iter is None:
            self._data_iter = iter(self._data_loader)

        def batches():
            for _ in itertools.count(1):
                yield next(self._data_iter).to(self._device)

        with EventStorage():  # what the model puts meanwhile is dropped
            logging_rank("Running precise-BN for ", self._num_iter, " iterations...")
            update_bn_stats(self._model, batches(), self._num_iter)


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

    def __init__(self, cfg_filename, log_period, num_warmup):
        self.cfg_filename, self.log_period, self.num_warmup = cfg_filename, log_period, num_warmup
        self.timers = {name: Timer() for name in ("iter", "data", "infer", "post")}
        self.done = 0

    def iter_tic(self):
        self.timers["iter"].tic()

    def iter_toc(self):
        self.done += 1
        if self.done == self.num_warmup:
            for timer in self.timers.values():
                timer.reset()
            self.timers["iter"].tic()
        return self.timers["iter"].toc(average=False)

    def infer_tic(self):
        self.timers["infer"].tic()

    def infer_toc(self):
        return self.timers["infer"].toc(average=False)

    def log_stats(self, cur_idx, start_ind, end_ind, total_num_images, ims_per_gpu=1):
        if (cur_idx + 1) % self.log_period == 0:
            eta_seconds = self.timers["iter"].average_time * (end_ind - cur_idx - 1)
            logging_rank(
                "[Testing][range:{}-{} of {}][{}/{}][{:.3f}s = {:.3f}s][eta: {}]".format(
                    *(start_ind + 1, end_ind, total_num_images, cur_idx + 1, end_ind - start_ind),
                    self.timers["iter"].average_time,
                    self.timers["infer"].average_time,
                    datetime.timedelta(seconds=int(eta_seconds)),
                )
            )
