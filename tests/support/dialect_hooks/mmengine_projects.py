"""Hooks of projects on MMEngine, rewritten from the repositories and documentation.

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
ThroughputHook                   xtuner, ``engine/hooks/throughput_hook.py``
PushDataInfoToMessageHubHook     mmpretrain, ``engine/hooks/simsiam`` and its like, as in mmselfsup
SwitchToDeployHook               mmyolo, ``engine/hooks/switch_to_deploy_hook.py``
FastStopTrainingHook             mmdetection, ``testing/_fast_stop_training_hook.py``
OutputHook                       mmaction2, ``engine/hooks/output.py``
BestScoreHook                    users' recipe: the best score in the message hub, and drawn
SetAdaptiveMarginsHook           mmpretrain, ``engine/hooks/margin_head_hooks.py``
WeightNormHook                   MMEngine's documentation of the message hub
ProgressiveResizeHook            users' recipe: the data set of the loop changes by epochs
GradientAccumulationInfoHook     MMEngine's documentation of ``OptimWrapper``: rates and momenta
ResumeInfoHook                   MMEngine's documentation of the points of checkpoints
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


@HOOKS.register_module(force=True)
class ThroughputHook(Hook):
    priority = "BELOW_NORMAL"

    def __init__(self, hidden_size=4):
        self.hidden_size = hidden_size

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        batch_size, length = data_batch[0].shape[:2]
        time = runner.message_hub.get_scalar("train/time").current()
        hub = runner.message_hub
        hub.update_scalar("train/tokens_per_sec", batch_size * length / max(time, 1e-9))
        hub.update_scalar("train/flops", 2 * batch_size * length * self.hidden_size)


@HOOKS.register_module(force=True)
class PushDataInfoToMessageHubHook(Hook):
    def before_train_iter(self, runner, batch_idx, data_batch=None):
        runner.message_hub.update_info("samples", data_batch[0].tolist())


@HOOKS.register_module(force=True)
class SwitchToDeployHook(Hook):
    def before_test_epoch(self, runner):
        for module in runner.model.modules():
            if hasattr(module, "switch_to_deploy"):
                module.switch_to_deploy()


@HOOKS.register_module(force=True)
class FastStopTrainingHook(Hook):
    def __init__(self, by_epoch, save_ckpt=False, stop_iter_or_epoch=5):
        self.by_epoch, self.save_ckpt = by_epoch, save_ckpt
        self.stop_iter_or_epoch = stop_iter_or_epoch

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        if self.save_ckpt and self.by_epoch:
            return
        if runner.iter >= self.stop_iter_or_epoch:
            raise RuntimeError("quit normally")

    def after_train_epoch(self, runner):
        if self.by_epoch and self.save_ckpt and runner.epoch >= self.stop_iter_or_epoch:
            raise RuntimeError("quit normally")


@HOOKS.register_module(force=True)
class OutputHook(Hook):
    """Keeps the outputs of layers during the validation."""

    def __init__(self, outputs):
        self.names, self.layer_outputs, self.handles = outputs, {}, []

    def before_val_epoch(self, runner):
        layers = dict(runner.model.named_modules())
        for name in self.names:
            self.handles.append(layers[name].register_forward_hook(self._keep(name)))

    def _keep(self, name):
        def keep(module, inputs, output):
            self.layer_outputs[name] = output.detach().clone()

        return keep

    def after_val_epoch(self, runner, metrics=None):
        for handle in self.handles:
            handle.remove()


@HOOKS.register_module(force=True)
class BestScoreHook(Hook):
    def __init__(self, metric):
        self.metric, self.seen = metric, []

    def after_val_epoch(self, runner, metrics=None):
        score = metrics[self.metric]
        best = runner.message_hub.get_info("best", None)
        if best is None or score < best:
            runner.message_hub.update_info("best", score)
        self.seen.append((runner.epoch, score))
        runner.visualizer.add_scalar(f"best/{self.metric}", runner.message_hub.get_info("best"))


@HOOKS.register_module(force=True)
class SetAdaptiveMarginsHook(Hook):
    def __init__(self, margin_min=0.05, margin_max=0.5):
        self.margin_min, self.margin_max = margin_min, margin_max

    def before_train(self, runner):
        if not hasattr(runner.model.head, "set_margins"):
            raise ValueError("SetAdaptiveMarginsHook could only be used with ArcFaceClsHead")
        counts = torch.bincount(runner.train_dataloader.dataset.labels).float()
        margins = counts.pow(-0.25)
        span = (margins - margins.min()) / (margins.max() - margins.min())
        width = self.margin_max - self.margin_min
        runner.model.head.set_margins((span * width + self.margin_min).tolist())


@HOOKS.register_module(force=True)
class WeightNormHook(Hook):
    priority = "LOW"

    def __init__(self, interval=2):
        self.interval = interval

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        if self.every_n_inner_iters(batch_idx, self.interval) or self.is_last_train_iter(runner):
            norm = torch.stack([p.norm() for p in runner.model.parameters()]).norm()
            runner.message_hub.update_scalar("train/weight_norm", norm.item())


@HOOKS.register_module(force=True)
class ProgressiveResizeHook(Hook):
    """Changes an attribute of the data set from epoch to epoch."""

    def __init__(self, sizes):
        self.sizes = sizes

    def before_train_epoch(self, runner):
        dataset = runner.train_loop.dataloader.dataset
        dataset.size = self.sizes[min(runner.epoch, len(self.sizes) - 1)]
        assert runner.max_epochs == runner.train_loop.max_epochs


@HOOKS.register_module(force=True)
class GradientAccumulationInfoHook(Hook):
    def __init__(self):
        self.seen = []

    def before_train(self, runner):
        runner.logger.info(f"{type(runner.optim_wrapper.optimizer).__name__} is used")

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        momentum = runner.optim_wrapper.get_momentum()["momentum"]
        self.seen.append((runner.optim_wrapper.get_lr()["lr"], momentum))


@HOOKS.register_module(force=True)
class ResumeInfoHook(Hook):
    def __init__(self):
        self.resumed_at = None

    def before_save_checkpoint(self, runner, checkpoint):
        checkpoint["meta_of_project"] = {"epoch": runner.epoch, "iter": runner.iter}

    def after_load_checkpoint(self, runner, checkpoint):
        self.resumed_at = checkpoint["meta_of_project"]
