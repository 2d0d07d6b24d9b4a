"""A training script as they were written for mmcv 1.x: it knows nothing of Lightning.

``python old_script.py work_dir --runner epoch --limit 3 --workflow "[('train', 1), ('val', 1)]"``
trains a small network on random digits and writes into ``work_dir`` what mmcv writes, and
``notes.json``: what a hook has seen at each of its calls.
"""

import argparse
import ast
import json
import os.path as osp

import mmcv
import torch
import torch.nn.functional as F
from mmcv.parallel import MMDataParallel, MMDistributedDataParallel, is_module_wrapper
from mmcv.runner import (
    HOOKS,
    DistEvalHook,
    EvalHook,
    Hook,
    build_optimizer,
    build_runner,
    get_dist_info,
    master_only,
    set_random_seed,
)
from mmcv.utils import get_logger
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Digits(TensorDataset):
    """Random images with labels that can be learned, and mmcv's ``evaluate``."""

    CLASSES = tuple("0123")

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        images = torch.rand(size, 1, 6, 6, generator=generator)
        super().__init__(images, (images.mean((1, 2, 3)) * 400).long() % 4)

    def evaluate(self, results, logger=None, scale=1):
        """Return the accuracy and the mean score."""
        scores = torch.stack(list(results))
        labels = self.tensors[1][: len(scores)]
        accuracy = (scores.argmax(1) == labels).float().mean().item()
        return {"acc": accuracy * scale, "mean": scores.mean().item()}


class Net(nn.Module):
    """A network with what makes trouble: BatchNorm, dropout, a loss of two parts."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(4, 4)

    def forward(self, img, label=None, return_loss=True):
        x = F.relu(self.norm(self.conv(img))).mean((2, 3))
        scores = self.fc(self.drop(x))
        if return_loss:
            loss = F.cross_entropy(scores, label)
            penalty = 1e-3 * self.fc.weight.abs().sum()
            return {"loss_cls": loss, "loss_reg": penalty}
        return list(scores)

    def train_step(self, data, optimizer):
        losses = self(*data)
        loss = sum(losses.values())
        log_vars = {name: value.item() for name, value in losses.items()}
        log_vars["loss"] = loss.item()
        return {"loss": loss, "log_vars": log_vars, "num_samples": len(data[0])}

    def val_step(self, data, optimizer=None):
        return self.train_step(data, optimizer)


class EvalLoader(DataLoader):
    """Gives batches the way that test functions of mmcv pass them on."""

    def __iter__(self):
        for images, _ in super().__iter__():
            yield {"img": images}


@HOOKS.register_module()
class NotesHook(Hook):
    """Notes at every call what it sees."""

    def __init__(self, path):
        self.path = path
        self.notes = []

    def note(self, point, runner):
        model = runner.model.module if is_module_wrapper(runner.model) else runner.model
        self.notes.append(
            {
                "at": [point, runner.epoch, runner.iter, runner.inner_iter, runner.mode],
                "of": [runner.max_epochs, runner.max_iters],
                "lr": runner.current_lr(),
                "momentum": runner.current_momentum(),
                "loss": runner.outputs["log_vars"]["loss"] if hasattr(runner, "outputs") else None,
                "weight": sum(p.double().abs().sum().item() for p in model.parameters()),
                "buffers": sum(b.double().abs().sum().item() for b in model.buffers()),
                "training": model.training,
                "logged": {k: [float(v) for v in vs]
                           for k, vs in runner.log_buffer.val_history.items() if "time" not in k},
            }
        )  # fmt: skip

    def after_run(self, runner):
        self.note("after_run", runner)
        self.dump(runner)

    @master_only
    def dump(self, runner):
        mmcv.dump(self.notes, self.path)


def _noting(point):
    def method(self, runner):
        self.note(point, runner)

    return method


for _point in Hook.stages[:-1]:
    setattr(NotesHook, _point, _noting(_point))


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("work_dir")
    parser.add_argument("--runner", default="epoch")
    parser.add_argument("--limit", type=int, default=3)
    parser.add_argument("--workflow", type=ast.literal_eval, default=[("train", 1)])
    parser.add_argument("--resume-from")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--ema", action="store_true")
    parser.add_argument("--wrapped", action="store_true")
    parser.add_argument("--cumulative", type=int, default=0)
    parser.add_argument("--launcher", default="none")
    return parser.parse_args()


def make_loaders(workflow, distributed):
    loaders = []
    for index, (mode, _) in enumerate(workflow):
        data = Digits(20 if mode == "train" else 10, seed=index)
        sampler = DistributedSampler(data) if distributed else None
        shuffle = mode == "train" and not distributed
        loaders.append(DataLoader(data, batch_size=4, shuffle=shuffle, sampler=sampler))
    return loaders


def main():
    args = parse_args()
    distributed = args.launcher != "none"
    if distributed:
        torch.distributed.init_process_group("gloo")  # init_dist of mmcv needs a GPU
    torch.set_num_threads(1)
    mmcv.mkdir_or_exist(osp.abspath(args.work_dir))
    rank, _ = get_dist_info()
    name = "old_script" if args.resume_from is None else "old_script_resumed"
    logger = get_logger(name, log_file=osp.join(args.work_dir, f"{name}.log"))
    set_random_seed(0)
    model = Net()
    if distributed:
        model = MMDistributedDataParallel(model, broadcast_buffers=False)
    elif args.wrapped:
        model = MMDataParallel(model, device_ids=[])
    decay = dict(norm_decay_mult=0.0, custom_keys={"fc": dict(lr_mult=2.0)})
    optimizer = build_optimizer(
        model, dict(type="SGD", lr=0.2, momentum=0.9, weight_decay=1e-3, paramwise_cfg=decay)
    )
    by_epoch = args.runner == "epoch"
    runner = build_runner(
        dict(type="EpochBasedRunner", max_epochs=args.limit)
        if by_epoch
        else dict(type="IterBasedRunner", max_iters=args.limit),
        default_args=dict(
            model=model,
            optimizer=optimizer,
            work_dir=args.work_dir,
            logger=logger,
            meta=dict(exp_name="old", seed=0),
        ),
    )
    optimizer_config = dict(grad_clip=dict(max_norm=1.0))
    if args.cumulative:
        optimizer_config.update(
            type="GradientCumulativeOptimizerHook", cumulative_iters=args.cumulative
        )
    runner.register_training_hooks(
        lr_config=dict(
            policy="step", step=[2, 4], warmup="linear", warmup_iters=3, warmup_ratio=0.1
        ),
        optimizer_config=optimizer_config,
        checkpoint_config=dict(interval=1 if by_epoch else 4, max_keep_ckpts=2),
        log_config=dict(interval=2, hooks=[dict(type="TextLoggerHook")]),
        momentum_config=dict(policy="CosineAnnealing", min_momentum=0.5, by_epoch=by_epoch),
        custom_hooks_config=[
            dict(type="NotesHook", path=osp.join(args.work_dir, "notes.json"), priority="LOWEST")
        ],
    )
    if distributed and by_epoch:
        runner.register_hook_from_cfg(dict(type="DistSamplerSeedHook"))
    if args.ema:
        runner.register_hook_from_cfg(dict(type="EMAHook", momentum=0.1, priority=45))
    if args.evaluate:
        kind = DistEvalHook if distributed else EvalHook
        data = Digits(10, seed=7)
        sampler = DistributedSampler(data, shuffle=False) if distributed else None
        loader = EvalLoader(data, batch_size=4, sampler=sampler)
        interval = 1 if by_epoch else 3
        hook = kind(loader, interval=interval, by_epoch=by_epoch, save_best="acc", scale=100)
        runner.register_hook(hook, priority="LOW")
    if args.resume_from:
        runner.resume(args.resume_from, map_location="cpu")
    runner.run(make_loaders(args.workflow, distributed), args.workflow)
    if rank == 0:
        with open(osp.join(args.work_dir, "done.json"), "w") as file:
            json.dump({"epoch": runner.epoch, "iter": runner.iter}, file)


if __name__ == "__main__":
    main()
