"""Hooks of projects on detectron2, retold from their repositories and documentation.

======================  ===========================================================================
hook                    source
======================  ===========================================================================
EMAState, EMAHook       d2go, ``modeling/ema.py``
ValidationLoss          a widely copied recipe: the losses of a second loader, as scalars
EarlyStopping           users' recipe: an exception ends detectron2's loop, whose range is fixed
FreezeLayer             fast-reid, ``engine/hooks.py``
SWA                     fast-reid, ``engine/hooks.py``, without its data loader for BatchNorm
GradientMonitor         detectron2's documentation of ``after_backward``
VisualizeInput          detectron2's ``vis_period``: an image for the event writers
WAndBWriter             detectron2's documentation of ``EventWriter``, with a client handed in
======================  ===========================================================================
"""

import copy

import torch
from detectron2.engine.hooks import HookBase
from detectron2.utils.events import EventWriter, get_event_storage


class EMAState:
    def __init__(self):
        self.state = {}

    def iterate(self, model):
        yield from model.named_parameters()
        yield from model.named_buffers()

    def save_from(self, model):
        self.state = {name: value.detach().clone() for name, value in self.iterate(model)}

    def apply_to(self, model):
        with torch.no_grad():
            for name, value in self.iterate(model):
                value.copy_(self.state[name])


class EMAHook(HookBase):
    def __init__(self, model, decay):
        self.model, self.decay, self.ema = model, decay, EMAState()

    def before_train(self):
        self.ema.save_from(self.model)

    def after_step(self):
        if not self.model.train:
            return
        with torch.no_grad():
            for name, value in self.ema.iterate(self.model):
                average = self.ema.state[name]
                average.copy_(average * self.decay + value * (1 - self.decay))


class ValidationLoss(HookBase):
    def __init__(self, loader):
        super().__init__()
        self._loader = iter(loader)

    def after_step(self):
        data = next(self._loader)
        with torch.no_grad():
            loss_dict = self.trainer.model(data)
            losses = sum(loss_dict.values())
            assert torch.isfinite(losses).all(), loss_dict
            reduced = {"val_" + k: v.item() for k, v in loss_dict.items()}
            self.trainer.storage.put_scalars(total_val_loss=sum(reduced.values()), **reduced)


class StopTrainingError(Exception):
    pass


class EarlyStopping(HookBase):
    def __init__(self, patience, name="total_loss"):
        self.patience, self.name = patience, name
        self.best, self.waited = float("inf"), 0

    def after_step(self):
        value = self.trainer.storage.history(self.name).latest()
        self.waited = 0 if value < self.best else self.waited + 1
        self.best = min(value, self.best)
        if self.waited >= self.patience:
            raise StopTrainingError(self.trainer.iter)


class FreezeLayer(HookBase):
    def __init__(self, model, freeze_layers, freeze_iters):
        self.model = model
        self.freeze_layers, self.freeze_iters = freeze_layers, freeze_iters
        self.is_frozen = False

    def before_step(self):
        if self.trainer.iter < self.freeze_iters and not self.is_frozen:
            self.freeze_specific_layer()
        if self.trainer.iter >= self.freeze_iters and self.is_frozen:
            self.open_all_layer()

    def freeze_specific_layer(self):
        for name, module in self.model.named_children():
            if name in self.freeze_layers:
                module.eval()
                for parameter in module.parameters():
                    parameter.requires_grad_(False)
        self.is_frozen = True

    def open_all_layer(self):
        self.model.train()
        for parameter in self.model.parameters():
            parameter.requires_grad_(True)
        self.is_frozen = False


class SWA(HookBase):
    def __init__(self, swa_start, swa_freq, cyclic_lr):
        self.swa_start, self.swa_freq, self.cyclic_lr = swa_start, swa_freq, cyclic_lr
        self.count = 0

    def before_step(self):
        if self.trainer.iter == self.swa_start:
            for group in self.trainer.optimizer.param_groups:
                group["lr"] = self.cyclic_lr

    def after_step(self):
        done = self.trainer.iter + 1 - self.swa_start
        if done > 0 and done % self.swa_freq == 0:
            self.update(self.trainer.model)

    def update(self, model):
        state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        if self.count:
            state = {
                n: (self.mean[n] * self.count + v) / (self.count + 1) for n, v in state.items()
            }
        self.mean, self.count = state, self.count + 1

    def after_train(self):
        self.trainer.model.load_state_dict(self.mean)

    def state_dict(self):
        return {"count": self.count, "mean": copy.copy(getattr(self, "mean", {}))}


class GradientMonitor(HookBase):
    def after_backward(self):
        for name, parameter in self.trainer.model.named_parameters():
            get_event_storage().put_scalar(f"grad/{name}", parameter.grad.norm())
            get_event_storage().put_histogram(f"grad/{name}", parameter.grad, bins=4)


class VisualizeInput(HookBase):
    def __init__(self, period):
        self.period = period

    def after_step(self):
        if self.trainer.iter % self.period == 0:
            image = torch.zeros(3, 4, 4, dtype=torch.uint8)
            self.trainer.storage.put_image(f"input {self.trainer.iter}", image)


class WAndBWriter(EventWriter):
    def __init__(self, client, window_size=20):
        self._client, self._window_size = client, window_size

    def write(self):
        storage = get_event_storage()
        sent = {}
        for name, (value, _) in storage.latest_with_smoothing_hint(self._window_size).items():
            sent[name] = value
        for name, _, _ in storage._vis_data:
            sent[name] = "image"
        storage.clear_images()
        self._client.append((storage.iter, sent))
