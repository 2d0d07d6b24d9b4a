"""Hooks of projects on detectron2, rewritten from the repositories and documentation.

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
LossEvalHook            a tutorial, copied into thousands of notebooks: the mean loss of a data set
MLflowHook              MLflow users' tutorial: parameters, latest values and files to a client
NeptuneHook             Neptune's documentation for detectron2: the same, by namespaces
PlotLosses              an issue of detectron2: curves from the storage's histories
ReduceOnPlateau         an issue of detectron2: a scheduler that reads an evaluation
EMACopyHook             detrex, ``modeling/ema.py``: a copied model, swapped in for evaluations
BurnIn                  Unbiased Teacher: the teacher is copied after a burn-in, then averaged
GradientClip            users' recipe in ``after_backward``
LogLearningRates        fast-reid and AdelaiDet: the rates of all groups, by name
TimeBudget              users' recipe: the run ends by its wall clock, at ``trainer.iter``
BestByLoss              users' recipe on ``Checkpointer.save`` with further values
======================  ===========================================================================
"""

import copy
import math
import time

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


class LossEvalHook(HookBase):
    def __init__(self, eval_period, model, data_loader):
        self._model, self._period, self._data_loader = model, eval_period, data_loader

    def _do_loss_eval(self):
        losses = [self._get_loss(inputs) for inputs in self._data_loader]
        self.trainer.storage.put_scalar("validation_loss", sum(losses) / len(losses))
        return losses

    def _get_loss(self, data):
        with torch.no_grad():
            metrics = {k: v.detach().cpu().item() for k, v in self._model(data).items()}
        return sum(metrics.values())

    def after_step(self):
        next_iter = self.trainer.iter + 1
        is_final = next_iter == self.trainer.max_iter
        if is_final or (self._period > 0 and next_iter % self._period == 0):
            self._do_loss_eval()
        self.trainer.storage.put_scalars(timetest=12)


class MLflowHook(HookBase):
    def __init__(self, client, cfg):
        self.client, self.cfg = client, cfg

    def before_train(self):
        for name, value in self.cfg.items():
            self.client.append(("param", name, value))

    def after_step(self):
        for name, (value, step) in self.trainer.storage.latest().items():
            self.client.append((name, value, step))

    def after_train(self):
        self.client.append(("end", self.trainer.iter, self.trainer.max_iter))


class NeptuneHook(HookBase):
    def __init__(self, run, metrics_update_freq=2, smoothing_window_size=2):
        self._run, self.metrics_update_freq = run, metrics_update_freq
        self._window_size = smoothing_window_size

    def before_train(self):
        self._run["model/summary"] = str(self.trainer.model)
        self._run["parameters/optimizer"] = type(self.trainer.optimizer).__name__

    def after_step(self):
        if self.trainer.iter % self.metrics_update_freq == 0:
            storage = get_event_storage()
            for name, (value, _) in storage.latest_with_smoothing_hint(self._window_size).items():
                self._run.setdefault(f"metrics/{name}", []).append((storage.iter, value))


class PlotLosses(HookBase):
    def __init__(self):
        self.curves = {}

    def after_train(self):
        for name, history in self.trainer.storage.histories().items():
            self.curves[name] = [value for value, _ in history.values()]
            self.curves[f"{name}/average"] = history.global_avg()


class ReduceOnPlateau(HookBase):
    def __init__(self, period, name, **kwargs):
        self.period, self.name, self.kwargs = period, name, kwargs

    def before_train(self):
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.trainer.optimizer, **self.kwargs
        )

    def after_step(self):
        if (self.trainer.iter + 1) % self.period == 0:
            value = self.trainer.storage.latest()[self.name][0]
            self.scheduler.step(value)
            lr = self.trainer.optimizer.param_groups[0]["lr"]
            self.trainer.storage.put_scalar("lr", lr, smoothing_hint=False)

    def state_dict(self):
        return self.scheduler.state_dict()

    def load_state_dict(self, state_dict):
        self.loaded = state_dict


class EMACopyHook(HookBase):
    def __init__(self, model, decay):
        self.ema = copy.deepcopy(model).requires_grad_(False)
        self.decay, self.kept = decay, None

    def after_step(self):
        own = self.trainer.model.state_dict()
        with torch.no_grad():
            for name, value in self.ema.state_dict().items():
                value.lerp_(own[name], 1 - self.decay)

    def apply(self):
        self.kept = copy.deepcopy(self.trainer.model.state_dict())
        self.trainer.model.load_state_dict(self.ema.state_dict())

    def restore(self):
        self.trainer.model.load_state_dict(self.kept)


class BurnIn(HookBase):
    def __init__(self, teacher, burn_in, keep_rate):
        self.teacher, self.burn_in, self.keep_rate = teacher, burn_in, keep_rate

    def before_step(self):
        if self.trainer.iter < self.burn_in:
            return
        keep = 0.0 if self.trainer.iter == self.burn_in else self.keep_rate
        student = self.trainer._trainer.model.state_dict()
        state = {
            name: student[name] * (1 - keep) + value * keep
            for name, value in self.teacher.state_dict().items()
        }
        self.teacher.load_state_dict(state)


class GradientClip(HookBase):
    def __init__(self, max_norm):
        self.max_norm = max_norm

    def after_backward(self):
        norm = torch.nn.utils.clip_grad_norm_(self.trainer.model.parameters(), self.max_norm)
        self.trainer.storage.put_scalar("grad_norm", norm)


class LogLearningRates(HookBase):
    def after_step(self):
        rates = {f"lr/{i}": g["lr"] for i, g in enumerate(self.trainer.optimizer.param_groups)}
        with self.trainer.storage.name_scope("rates"):
            self.trainer.storage.put_scalars(smoothing_hint=False, **rates)


class TimeBudget(HookBase):
    def __init__(self, seconds):
        self.seconds = seconds

    def before_train(self):
        self.start = time.perf_counter()

    def after_step(self):
        if time.perf_counter() - self.start > self.seconds:
            raise TimeoutError(f"{self.trainer.iter + 1} of {self.trainer.max_iter}")


class BestByLoss(HookBase):
    def __init__(self, checkpointer):
        self.checkpointer, self.best = checkpointer, math.inf

    def after_step(self):
        loss = self.trainer.storage.history("total_loss").avg(window_size=2)
        if loss < self.best:
            self.best = loss
            self.checkpointer.save("model_best", iteration=self.trainer.iter, loss=loss)
