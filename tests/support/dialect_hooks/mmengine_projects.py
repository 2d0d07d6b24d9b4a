"""Hooks of projects on MMEngine, retold from their repositories and documentation.

===============================  ==================================================================
hook                             source
===============================  ==================================================================
PPYOLOEParamSchedulerHook        mmyolo, ``engine/hooks/ppyoloe_param_scheduler_hook.py``
UnfreezeBackboneEpochBasedHook   mmdetection's documentation, "How to": unfreeze the backbone
BenchmarkHook                    mmdetection3d, ``engine/hooks/benchmark_hook.py``
CheckInvalidLossHook             MMEngine's documentation of hooks
ExponentialMovingAverageHook     mmagic, ``engine/hooks/ema.py``, with one module
SubmoduleEMAHook                 users' recipe: an average of a part of a model, compiled or not
ClassNumCheckHook                mmpretrain, ``engine/hooks/class_num_check_hook.py``
===============================  ==================================================================
"""

import math
from copy import deepcopy

import torch
from mmengine.hooks import Hook
from mmengine.registry import HOOKS


@HOOKS.register_module(force=True)
class PPYOLOEParamSchedulerHook(Hook):
    priority = 9

    def __init__(self, warmup_epochs=1, warmup_min_iter=1, start_factor=0.0, min_lr_ratio=0.0):
        self.warmup_epochs, self.warmup_min_iter = warmup_epochs, warmup_min_iter
        self.start_factor, self.min_lr_ratio = start_factor, min_lr_ratio

    def before_train(self, runner):
        self._base_lr = []
        for group in runner.optim_wrapper.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
            self._base_lr.append(group["initial_lr"])

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        cur_iters = runner.iter
        optimizer = runner.optim_wrapper.optimizer
        dataloader_len = len(runner.train_dataloader)
        warmup_total_iters = max(self.warmup_epochs * dataloader_len, self.warmup_min_iter)
        max_iters = runner.max_epochs * dataloader_len
        if cur_iters < warmup_total_iters:
            alpha = cur_iters / warmup_total_iters
            factor = self.start_factor * (1 - alpha) + alpha
        else:
            where = (cur_iters - warmup_total_iters) / (max_iters - warmup_total_iters)
            cosine = 0.5 * (math.cos(where * math.pi) + 1)
            factor = self.min_lr_ratio + (1 - self.min_lr_ratio) * cosine
        for base, group in zip(self._base_lr, optimizer.param_groups, strict=True):
            group["lr"] = base * factor


@HOOKS.register_module(force=True)
class UnfreezeBackboneEpochBasedHook(Hook):
    def __init__(self, unfreeze_epoch=1):
        self.unfreeze_epoch = unfreeze_epoch

    def before_train_epoch(self, runner):
        if runner.epoch == self.unfreeze_epoch:
            model = runner.model
            model = getattr(model, "module", model)
            for parameter in model.net.parameters():
                parameter.requires_grad = True


@HOOKS.register_module(force=True)
class BenchmarkHook(Hook):
    priority = "VERY_LOW"

    def after_train_epoch(self, runner):
        mean = runner.message_hub.get_scalar("train/loss").mean(len(runner.train_dataloader))
        runner.logger.info(f"Training of epoch {runner.epoch + 1} has the loss {mean:.6f}")


@HOOKS.register_module(force=True)
class CheckInvalidLossHook(Hook):
    def __init__(self, interval=50):
        self.interval = interval

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        if self.every_n_train_iters(runner, self.interval):
            assert torch.isfinite(outputs["loss"]), runner.logger.info(
                "loss become infinite or NaN!"
            )


@HOOKS.register_module(force=True)
class ExponentialMovingAverageHook(Hook):
    def __init__(self, module_key, momentum, interval=1, start_iter=0):
        assert module_key.endswith("_ema")
        self.module_key, self.momentum = module_key, momentum
        self.interval, self.start_iter = interval, start_iter

    def before_run(self, runner):
        model = getattr(runner.model, "module", runner.model)
        if not hasattr(model, self.module_key):
            source = getattr(model, self.module_key[:-4])
            setattr(model, self.module_key, deepcopy(source).requires_grad_(False))

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        if not self.every_n_train_iters(runner, self.interval):
            return
        model = getattr(runner.model, "module", runner.model)
        average = getattr(model, self.module_key)
        weight = 1 - self.momentum if runner.iter >= self.start_iter else 1.0
        with torch.no_grad():
            source = getattr(model, self.module_key[:-4])
            for value, mean in zip(source.parameters(), average.parameters(), strict=True):
                mean.lerp_(value, weight)


@HOOKS.register_module(force=True)
class SubmoduleEMAHook(Hook):
    def __init__(self, name, momentum):
        self.name, self.momentum = name, momentum

    def part(self, runner):
        model = getattr(runner.model, "module", runner.model)
        part = getattr(model, self.name)
        return getattr(part, "_orig_mod", part)  # of torch.compile

    def before_train(self, runner):
        self.state = {k: v.clone() for k, v in self.part(runner).state_dict().items()}

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        for name, value in self.part(runner).state_dict().items():
            self.state[name].lerp_(value, self.momentum)

    def before_save_checkpoint(self, runner, checkpoint):
        checkpoint["submodule_ema"] = self.state


@HOOKS.register_module(force=True)
class ClassNumCheckHook(Hook):
    def _check_head(self, runner, dataset):
        model = getattr(runner.model, "module", runner.model)
        if getattr(dataset, "CLASSES", None) is None:
            runner.logger.warning(f"Please set class information in {type(dataset).__name__}")
        elif model.net.out_features != len(dataset.CLASSES):
            raise ValueError(f"{model.net.out_features} outputs for {len(dataset.CLASSES)} classes")

    def before_train(self, runner):
        self._check_head(runner, runner.train_dataloader.dataset)

    def before_val(self, runner):
        self._check_head(runner, runner.val_dataloader.dataset)
