"""Hooks of users of cvpods, on its main loop: a hook makes the optimizer's step.

==================  ===============================================================================
hook                source
==================  ===============================================================================
ClippedStep         projects of cvpods' playground: a subclass of ``OptimizationHook``
SharpnessAware      users' recipe: two backward passes in a step
NoisyGradients      users' recipe: noise between backward and step
ModelEMA            YOLOX on cvpods: an average whose decay grows with the updates
FreezeBatchNorm     DeFCN-like recipes: statistics stay from an iteration on
LossScale           self-supervised projects: the loss is scaled before backward
KnnEvaluation       self-supervised projects: an evaluation that uses the features
LossWeights         users' recipe: terms of ``step_outputs`` are weighed in ``after_step``
==================  ===============================================================================
"""

import copy
import math

import torch

from lightning_hooks.dialects.cvpods import EvalHook, HookBase, OptimizationHook, get_event_storage


class ClippedStep(OptimizationHook):
    def __init__(self, max_norm, **kwargs):
        super().__init__(**kwargs)
        self.max_norm = max_norm

    def after_step(self):
        parameters = [p for p in self.trainer.model.parameters() if p.requires_grad]
        for parameter in parameters:
            parameter.register_hook(lambda grad: grad.clamp(-self.max_norm, self.max_norm))
        super().after_step()


class SharpnessAware(HookBase):
    def __init__(self, rho, loss_of):
        self.rho, self.loss_of = rho, loss_of

    def after_step(self):
        optimizer = self.trainer.optimizer
        parameters = list(self.trainer.model.parameters())
        optimizer.zero_grad()
        self.trainer.step_outputs["loss_for_backward"].backward()
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        moves = [p.grad * (self.rho / (norm + 1e-12)) for p in parameters]
        with torch.no_grad():
            for parameter, move in zip(parameters, moves, strict=True):
                parameter.add_(move)
        optimizer.zero_grad()
        self.loss_of(self.trainer.model).backward()
        with torch.no_grad():
            for parameter, move in zip(parameters, moves, strict=True):
                parameter.sub_(move)
        optimizer.step()
        get_event_storage().put_scalar("sharpness_norm", norm.item())


class NoisyGradients(HookBase):
    def __init__(self, scale, seed):
        self.scale, self.generator = scale, torch.Generator().manual_seed(seed)

    def after_step(self):
        self.trainer.optimizer.zero_grad()
        self.trainer.step_outputs["loss_for_backward"].backward()
        for parameter in self.trainer.model.parameters():
            noise = torch.randn(parameter.shape, generator=self.generator)
            parameter.grad.add_(noise, alpha=self.scale / (1 + self.trainer.iter))
        self.trainer.optimizer.step()


class ModelEMA(HookBase):
    def __init__(self, decay=0.9998):
        self.decay, self.updates = decay, 0

    def before_train(self):
        self.ema = copy.deepcopy(self.trainer.model).eval().requires_grad_(False)

    def after_step(self):
        self.updates += 1
        decay = self.decay * (1 - math.exp(-self.updates / 2000))
        own = self.trainer.model.state_dict()
        for name, value in self.ema.state_dict().items():
            if value.dtype.is_floating_point:
                value *= decay
                value += (1.0 - decay) * own[name].detach()

    def after_train(self):
        self.at_end = self.trainer.iter


class FreezeBatchNorm(HookBase):
    def __init__(self, at):
        self.at = at

    def before_step(self):
        if self.trainer.iter >= self.at:
            for module in self.trainer.model.modules():
                if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                    module.eval()


class LossScale(HookBase):
    def __init__(self, factor):
        self.factor = factor

    def after_step(self):
        outputs = self.trainer.step_outputs
        outputs["loss_for_backward"] = outputs["loss_for_backward"] * self.factor
        loss = outputs["loss_for_backward"].item()
        get_event_storage().put_scalar("scaled", loss, smoothing_hint=False)


class KnnEvaluation(EvalHook):
    def __init__(self, period, features, targets):
        super().__init__(period, self.evaluate)
        self.features, self.targets = features, targets

    def evaluate(self):
        with torch.no_grad():
            embedded = self.trainer.model.net(self.features)
        nearest = torch.cdist(embedded, embedded).fill_diagonal_(float("inf")).argmin(1)
        return {"knn": {"top1": (self.targets[nearest] == self.targets).float().mean().item()}}


class LossWeights(HookBase):
    def __init__(self, **weights):
        self.weights = weights

    def after_step(self):
        outputs = self.trainer.step_outputs
        outputs["loss_for_backward"] = sum(
            value * self.weights.get(name, 1.0)
            for name, value in outputs.items()
            if name.startswith("loss_") and name != "loss_for_backward"
        )
