"""Pet's base classes and training loop without Lightning: the reference of the dialect's tests.

Source: Pet (Beijing University of Posts and Telecommunications), ``pet/lib/utils``, rewritten.
:func:`support.as_library.load_as` imports the file as ``pet.lib``.
"""

from __future__ import annotations

import json
import time

import torch

from support.library_storage import library_storage

_CURRENT_STORAGE_STACK, get_event_storage, Storage = library_storage()


class EventStorage(Storage):
    """Scalars by name."""

    def put_scalars(self, smoothing_hint=True, **values):
        for name, value in values.items():
            self.put_scalar(name, value, smoothing_hint)

    def step(self):
        self.iter += 1


class EventWriter:
    """The base of writers."""

    def write(self, **kwargs):
        raise NotImplementedError

    def close(self):
        pass


class JSONWriter(EventWriter):
    """Writes a row of all values in each call, as in Pet."""

    def __init__(self, json_file, window_size=20):
        self._file = open(json_file, "a")  # noqa: SIM115
        self._window_size = window_size

    def write(self, **kwargs):
        storage = get_event_storage()
        row = {"iteration": storage.iter + 1}
        row.update(storage.latest_with_smoothing_hint(self._window_size))
        self._file.write(json.dumps(row, sort_keys=True) + "\n")

    def close(self):
        self._file.close()


class TrainHook:
    """The base of hooks."""

    def before_train(self, *args, **kwargs):
        pass

    def after_train(self, *args, **kwargs):
        pass

    def before_step(self, *args, **kwargs):
        pass

    def after_step(self, *args, **kwargs):
        pass


class Timer:
    """Pet's two timers."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.start = time.perf_counter()
        self.paused = None
        self.total_time = self.calls = self.pauses = 0

    def tic(self):
        self.start = time.perf_counter()

    def toc(self, average=True):
        self.diff = time.perf_counter() - self.start
        self.total_time += self.diff
        self.calls += 1
        self.average_time = self.total_time / self.calls
        return self.average_time if average else self.diff

    def pause(self):
        self.paused = time.perf_counter()

    def resume(self):
        self.pauses += time.perf_counter() - self.paused
        self.paused = None

    def seconds(self):
        return (self.paused or time.perf_counter()) - self.start - self.pauses


def logging_rank(*parts, distributed=True, local_rank=0):
    print(*parts, sep="")


def get_bn_modules(model):
    norms = torch.nn.modules.batchnorm._BatchNorm
    return [m for m in model.modules() if m.training and isinstance(m, norms)]


@torch.no_grad()
def update_bn_stats(model, data_loader, device, num_iters=200):
    layers = get_bn_modules(model)
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 1.0  # the running statistics equal the batch's
    means = [torch.zeros_like(layer.running_mean) for layer in layers]
    squares = [torch.zeros_like(layer.running_var) for layer in layers]
    for done, inputs in zip(range(num_iters), data_loader, strict=False):
        model(inputs.to(device))
        for index, layer in enumerate(layers):
            means[index] += (layer.running_mean - means[index]) / (done + 1)
            square = layer.running_var + layer.running_mean**2
            squares[index] += (square - squares[index]) / (done + 1)
    for index, layer in enumerate(layers):
        layer.running_mean = means[index]
        layer.running_var = squares[index] - means[index] ** 2
        layer.momentum = momenta[index]


def train(model, loader, optimizer, hooks, epochs, per_epoch, by_epoch):
    """Train in Pet's loop by epoch, or in the detectors' loop by iteration."""
    max_iter = epochs * per_epoch
    for hook in hooks:
        hook.before_train()
    with EventStorage(1) as storage:
        for iteration, batch in zip(range(1, max_iter + 1), loader, strict=True):
            storage.iter = iteration
            for hook in hooks:
                hook.before_step(storage=storage)
            optimizer.zero_grad()
            loss = model.loss(batch)
            loss.backward()
            optimizer.step()
            storage.put_scalar("total_loss", loss.item())
            epoch = (iteration - 1) // per_epoch + 1
            more = {"epoch": epoch, "max_epoch": epochs} if by_epoch else {}
            for hook in hooks:
                hook.after_step(storage=storage, **more)
        storage.step()
        for hook in hooks:
            hook.after_train(storage=storage)
