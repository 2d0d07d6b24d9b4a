import bisect, copy, math, os.path as osp, warnings
from collections import OrderedDict
import numpy as np
import torch
import mmcv
from mmcv.parallel import is_module_wrapper
from mmcv.runner import (
    HOOKS,
    Hook,
    get_dist_info,
    master_only,
    EvalHook,
    OptimizerHook,
    CheckpointHook,
)
from mmcv.runner.hooks import LrUpdaterHook, TextLoggerHook, EMAHook, IterTimerHook
from mmcv.runner.hooks.lr_updater import (
    annealing_cos,
    CosineAnnealingLrUpdaterHook,
    StepLrUpdaterHook,
)
from mmcv.runner.hooks.momentum_updater import MomentumUpdaterHook, StepMomentumUpdaterHook
from mmcv.runner.hooks.logger.base import LoggerHook
from mmcv.runner.hooks.optimizer import GradientCumulativeOptimizerHook
from mmcv.runner.hooks.hook import HOOKS as H2
from mmcv.utils import print_log, is_list_of
from mmcv.runner.base_runner import BaseRunner

assert H2 is HOOKS


def inner(runner):
    return runner.model.module if is_module_wrapper(runner.model) else runner.model


@HOOKS.register_module()
class SetEpoch(Hook):
    def before_train_epoch(self, runner):
        inner(runner).epoch = runner.epoch

    def before_val_epoch(self, runner):
        inner(runner).epoch = -runner.epoch - 1


@HOOKS.register_module
class FreezeUntil(Hook):
    """detr-style"""

    def __init__(self, names=("conv",), epochs=1):
        self.names, self.epochs = names, epochs

    def before_train_epoch(self, runner):
        free = runner.epoch >= self.epochs
        for n, p in inner(runner).named_parameters():
            if any(n.startswith(k) for k in self.names):
                p.requires_grad = free
                if not free:
                    p.grad = None
        for m in inner(runner).modules():
            if isinstance(m, torch.nn.BatchNorm2d) and not free:
                m.eval()


@HOOKS.register_module(name=["GradStats", "GradientStatistics"])
class GradStatsHook(Hook):
    def __init__(self, interval=1, log=True):
        self.interval = interval
        self.log = log

    def after_train_iter(self, runner):
        if self.every_n_iters(runner, self.interval):
            norms = [p.grad.norm(2).item() for p in runner.model.parameters() if p.grad is not None]
            total = float(np.sqrt(np.sum(np.square(norms))))
            runner.log_buffer.update(
                {"grad_total": total, "n_grads": len(norms)}, runner.outputs["num_samples"]
            )
            runner.logger.info(
                f"grads {len(norms)} {total:.3f} inner {self.every_n_inner_iters(runner, 2)} end {self.end_of_epoch(runner)} last {self.is_last_iter(runner)} {self.is_last_epoch(runner)}"
            )


@HOOKS.register_module()
class DistillHook(Hook):
    def __init__(self, weight=0.1, start=2):
        self.weight, self.start, self.teacher = weight, start, None

    def before_run(self, runner):
        self.teacher = copy.deepcopy(runner.model)
        self.teacher.eval()
        for p in self.teacher.parameters():
            p.requires_grad_(False)

    def before_train_iter(self, runner):
        inner(runner).distill = None
        if runner.iter >= self.start:
            inner(runner).distill = (self.teacher, self.weight)

    def after_train_epoch(self, runner):
        with torch.no_grad():
            for a, b in zip(self.teacher.parameters(), runner.model.parameters()):
                a.mul_(0.9).add_(b, alpha=0.1)


@HOOKS.register_module()
class EarlyStop(Hook):
    def __init__(self, key="acc", patience=1, rule="greater"):
        self.key, self.patience, self.best, self.bad = key, patience, None, 0

    def before_run(self, runner):
        lrs = [h for h in runner.hooks if isinstance(h, LrUpdaterHook)]
        if not lrs:
            raise ValueError("needs an lr hook")
        self.warmup_iters = lrs[0].warmup_iters

    def after_train_epoch(self, runner):
        if self.key not in runner.log_buffer.output:
            return
        value = runner.log_buffer.output[self.key]
        if self.best is None or value > self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        runner.meta["hook_msgs"]["stopper"] = [float(self.best), self.bad]
        if self.bad > self.patience:
            print_log("stopping early", runner.logger)
            runner._max_epochs = runner.epoch + 1


@HOOKS.register_module()
class ModelEMA(Hook):
    """deepcopied ema with runner attribute"""

    def __init__(self, momentum=0.9, interval=2, save=True):
        self.momentum, self.interval, self.save = momentum, interval, save

    def before_run(self, runner):
        assert not hasattr(runner, "ema_model")
        runner.ema_model = copy.deepcopy(runner.model)
        self.updates = 0

    def after_train_iter(self, runner):
        if not self.every_n_iters(runner, self.interval):
            return
        self.updates += 1
        d = self.momentum * (1 - math.exp(-self.updates / 5))
        msd = runner.model.state_dict()
        with torch.no_grad():
            for k, v in runner.ema_model.state_dict().items():
                if v.dtype.is_floating_point:
                    v.mul_(d).add_(msd[k].detach(), alpha=1 - d)

    def after_train_epoch(self, runner):
        if self.save:
            keep = runner.model
            runner.model = runner.ema_model
            runner.save_checkpoint(
                runner.work_dir,
                filename_tmpl="ema_{}.pth",
                save_optimizer=False,
                create_symlink=False,
            )
            runner.model = keep


@HOOKS.register_module()
class CumulativeHook(OptimizerHook):
    def __init__(self, cumulative_iters=2, **kw):
        super().__init__(**kw)
        self.n = cumulative_iters

    def before_run(self, runner):
        assert runner.max_iters
        self.remainder = runner.max_iters % self.n

    def after_train_iter(self, runner):
        if self.every_n_iters(runner, 1) and runner.iter % self.n == 0:
            runner.optimizer.zero_grad()
        runner.outputs["loss"] /= self.n
        runner.outputs["loss"].backward()
        if self.every_n_iters(runner, self.n) or self.is_last_iter(runner):
            if self.grad_clip is not None:
                g = self.clip_grads(runner.model.parameters())
                if g is not None:
                    runner.log_buffer.update({"grad_norm": float(g)}, runner.outputs["num_samples"])
            runner.optimizer.step()


@HOOKS.register_module()
class SAMHook(OptimizerHook):
    def __init__(self, rho=0.05, **kw):
        super().__init__(**kw)
        self.rho = rho

    def after_train_iter(self, runner):
        runner.optimizer.zero_grad()
        runner.outputs["loss"].backward()
        params = [p for p in runner.model.parameters() if p.grad is not None]
        norm = torch.norm(torch.stack([p.grad.norm(2) for p in params]), 2)
        es = []
        with torch.no_grad():
            for p in params:
                e = p.grad * self.rho / (norm + 1e-12)
                p.add_(e)
                es.append(e)
        runner.optimizer.zero_grad()
        out = runner.model.train_step(inner(runner).current, runner.optimizer)
        out["loss"].backward()
        with torch.no_grad():
            for p, e in zip(params, es):
                p.sub_(e)
        runner.optimizer.step()


@HOOKS.register_module()
class ExpWarmCosineLrUpdaterHook(CosineAnnealingLrUpdaterHook):
    def __init__(self, hold=2, **kw):
        self.hold = hold
        super().__init__(**kw)

    def get_warmup_lr(self, cur_iters):
        k = self.warmup_ratio * pow((cur_iters + 1) / float(self.warmup_iters), 2)
        return [g * k for g in self.regular_lr]

    def get_lr(self, runner, base_lr):
        progress = runner.epoch if self.by_epoch else runner.iter
        if progress < self.hold:
            return base_lr
        return annealing_cos(
            base_lr,
            self.min_lr or 0,
            progress / (runner.max_epochs if self.by_epoch else runner.max_iters),
        )


@HOOKS.register_module()
class PlateauLrUpdaterHook(LrUpdaterHook):
    def __init__(self, factor=0.5, key="acc", **kw):
        self.factor, self.key, self.last, self.scale = factor, key, None, 1.0
        super().__init__(**kw)

    def after_val_epoch(self, runner):
        v = runner.log_buffer.output.get("loss")
        self.last = v

    def get_lr(self, runner, base_lr):
        if runner.epoch and runner.epoch % 2 == 0 and self.by_epoch:
            self.scale *= self.factor
        return base_lr * self.scale


@HOOKS.register_module()
class HalfMomentumUpdaterHook(MomentumUpdaterHook):
    def get_momentum(self, runner, base_momentum):
        return base_momentum * 0.5 ** (runner.epoch if self.by_epoch else runner.iter / 10)


@HOOKS.register_module()
class NoBiasDecay(Hook):
    def before_train_epoch(self, runner):
        self.saved = runner.optimizer.param_groups
        groups = []
        for g in self.saved:
            for p in g["params"]:
                h = {k: v for k, v in g.items() if k != "params"}
                h["params"] = [p]
                if p.ndim == 1:
                    h["weight_decay"] = 0.0
                groups.append(h)
        runner.optimizer.param_groups = groups

    def after_train_epoch(self, runner):
        for g in self.saved:
            g["lr"] = runner.optimizer.param_groups[0]["lr"]
        runner.optimizer.param_groups = self.saved


@HOOKS.register_module()
class CsvLogger(LoggerHook):
    def __init__(self, path=None, **kw):
        super().__init__(**kw)
        self.rows = []

    @master_only
    def log(self, runner):
        tags = self.get_loggable_tags(
            runner, add_mode=True, tags_to_skip=("time", "data_time", "eval_iter_num")
        )
        self.rows.append(
            (
                self.get_mode(runner),
                self.get_epoch(runner),
                self.get_iter(runner),
                sorted((k, round(float(v), 6)) for k, v in tags.items()),
            )
        )

    def after_run(self, runner):
        super().after_run(runner) if hasattr(super(), "after_run") else None
        mmcv.dump(self.rows, osp.join(runner.work_dir, "csv.json"))


@HOOKS.register_module()
class VerboseText(TextLoggerHook):
    def _log_info(self, log_dict, runner):
        log_dict = OrderedDict((k, v) for k, v in log_dict.items())
        log_dict["extra"] = 1.5
        super()._log_info(log_dict, runner)

    def _get_max_memory(self, runner):
        return 0

    def _round_float(self, items):
        if isinstance(items, list):
            return [self._round_float(i) for i in items]
        return round(items, 4) if isinstance(items, float) else items


@HOOKS.register_module()
class KeepLatest(CheckpointHook):
    def _save_checkpoint(self, runner):
        runner.logger.info("saving my way")
        super()._save_checkpoint(runner)


@HOOKS.register_module()
class TTAEval(EvalHook):
    greater_keys = ["acc", "score"]
    less_keys = ["err"]

    def _do_evaluate(self, runner):
        if not self._should_evaluate(runner):
            return
        model = runner.model
        was = model.training
        model.eval()
        results = []
        bar = mmcv.ProgressBar(len(self.dataloader.dataset))
        for batch in self.dataloader:
            with torch.no_grad():
                a = model(return_loss=False, img=batch[0])
                b = model(return_loss=False, img=batch[0].flip(-1))
            results += [(x + y) / 2 for x, y in zip(a, b)]
            for _ in range(len(batch[0])):
                bar.update()
        model.train(was)
        runner.log_buffer.output["eval_iter_num"] = len(self.dataloader)
        key = self.evaluate(runner, results)
        if self.save_best and key:
            self._save_ckpt(runner, key)


@HOOKS.register_module()
class SwapData(Hook):
    def __init__(self, at=1):
        self.at = at

    def before_train_epoch(self, runner):
        if runner.epoch == self.at:
            from torch.utils.data import DataLoader

            runner.data_loader = DataLoader(runner.data_loader.dataset, batch_size=5)


@HOOKS.register_module()
class Installer(Hook):
    def before_run(self, runner):
        runner.register_hook(SetEpoch(), priority="LOWEST")
        self.info = [type(h).__name__ for h in runner.hooks]


@HOOKS.register_module()
class Notes(Hook):
    def __init__(self, light=False):
        self.notes = []

    def note(self, runner, at):
        m = inner(runner)
        o = runner.optimizer
        lr = runner.current_lr()
        self.notes.append(
            dict(
                at=[
                    at,
                    runner.epoch,
                    runner.iter,
                    runner.inner_iter,
                    runner.mode,
                    getattr(m, "epoch", None),
                    runner.log_buffer.ready,
                    type(runner).__name__,
                    isinstance(runner, BaseRunner),
                    [h.__class__.__name__ for h in runner.hooks],
                ],
                of=[runner.max_epochs, runner.max_iters],
                lr=lr,
                momentum=runner.current_momentum(),
                loss=sorted(
                    (k, float(v)) for k, v in runner.log_buffer.output.items() if "time" not in k
                ),
                weight=sum(p.double().abs().sum().item() for p in m.parameters()),
                buffers=sum(b.double().abs().sum().item() for b in m.buffers()),
                training=[m.training, runner.model.training],
            )
        )

    def after_run(self, runner):
        self.note(runner, "after_run")
        if runner.rank == 0:
            mmcv.dump(self.notes, osp.join(runner.work_dir, "notes.json"))


def _m(p):
    def f(self, runner):
        self.note(runner, p)

    return f


for p in (
    "before_run",
    "before_epoch",
    "before_train_epoch",
    "before_train_iter",
    "after_train_iter",
    "after_train_epoch",
    "after_epoch",
    "before_val_epoch",
    "after_val_epoch",
    "before_val_iter",
    "after_val_iter",
):
    if p not in ("before_epoch", "after_epoch"):
        setattr(Notes, p, _m(p))
