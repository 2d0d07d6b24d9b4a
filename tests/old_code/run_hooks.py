"""Run the hooks of real packages: ``run_hooks.py mmcv|runner|trainer packages_directory out.json``.

``mmcv``: under real mmcv's runners; ``runner``: under the stand-in's; ``trainer``: in an adapter
in a ``lightning.Trainer``.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "golden")]
from cases import CASES, Case  # noqa: E402
from packages import load  # noqa: E402

EPOCHS, ITERATIONS = 4, 10


class Digits(TensorDataset):
    """Data that hooks may ask things of."""

    CLASSES = tuple("abcd")

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        images = torch.rand(16, 1, 5, 5, generator=generator)
        super().__init__(images, torch.arange(16) % 4)
        self.skipped: Any = None

    def update_skip_type_keys(self, keys: Any) -> None:
        """YOLOX's switch."""
        self.skipped = keys


class Backbone(nn.Module):
    """A convolution and its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features of an image."""
        return torch.relu(self.conv(images)).mean((2, 3))


class BoxHead(nn.Module):
    """What detection hooks switch."""

    use_l1 = False
    rate: Any = None

    def set_decay_rate(self, rate: float) -> None:
        """Note the rate."""
        self.rate = rate


class Head(nn.Linear):
    """A head with a number of classes."""

    num_classes = 4


class Model(nn.Module):
    """A small network that has what the hooks of all packages look for."""

    CLASSES = Digits.CLASSES

    def __init__(self, drop_path: type) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.net, self.net_ema = nn.Linear(3, 4), nn.Linear(3, 4)
        self.drop_path = drop_path(0.0)
        self.head = Head(4, 4)
        self.bbox_head = BoxHead()
        self.roi_head = nn.Module()
        self.roi_head.bbox_head = self.bbox_head
        self.decoder = nn.Module()
        self.decoder.decoders = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
        self.loss_lambda, self.momentum, self.base_momentum = 0.5, 0.9, 0.9
        self.called: list[Any] = []

    def set_epoch(self, epoch: int) -> None:
        """Note the call."""
        self.called.append(["set_epoch", epoch])

    def set_train_epoch(self, epoch: int) -> None:
        """Note the call."""
        self.called.append(["set_train_epoch", epoch])

    def momentum_update(self) -> None:
        """Note the call."""
        self.called.append(["momentum_update", self.momentum])

    def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Compute the loss of a batch."""
        images, labels = data
        scores = self.head(self.net(self.drop_path(self.backbone(images))))
        loss = nn.functional.cross_entropy(scores, labels) * (1 + self.loss_lambda)
        return {
            "loss": loss,
            "log_vars": {"loss": loss.item()},
            "num_samples": len(images),
            "results": {"scores": scores.detach()},
        }

    val_step = train_step

    def state(self) -> dict[str, Any]:
        """What hooks may have changed."""
        return {
            "weights": sum(p.double().abs().sum().item() for p in self.parameters()),
            "buffers": sum(b.double().abs().sum().item() for b in self.buffers()),
            "set": [
                self.loss_lambda,
                self.momentum,
                self.bbox_head.use_l1,
                self.bbox_head.rate,
                self.drop_path.drop_prob,
                [p.requires_grad for p in self.backbone.parameters()],
            ],
            "called": list(self.called),
        }


def recorder(hook_class: type, notes: list[Any]) -> Any:
    """Make a hook that notes rates and weights at every point."""

    def note(point: str) -> Any:
        def method(self: Any, runner: Any) -> None:
            if point == "before_train_iter" and runner.iter % 3:
                return
            model = getattr(runner.model, "module", runner.model)
            at = [point, runner.epoch, runner.iter, runner.inner_iter]
            notes.append({"at": at, "lr": runner.current_lr(), **model.state()})

        return method

    points = hook_class.stages  # type: ignore[attr-defined]
    return type("Notes", (hook_class,), {point: note(point) for point in points})()


def run(case: Case, which: str, source: Path, work_dir: str) -> dict[str, Any]:
    """Run one case."""
    from mmcv.cnn.bricks import DropPath
    from mmcv.parallel import MMDataParallel
    from mmcv.runner import HOOKS, EpochBasedRunner, Hook, IterBasedRunner, OptimizerHook

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model(DropPath)
    optimizer = torch.optim.SGD(
        [
            {"params": model.backbone.parameters(), "fix_lr": True},
            {"params": [*model.net.parameters(), *model.head.parameters()]},
        ],
        lr=0.1,
        momentum=0.9,
    )
    known = {**HOOKS.module_dict}
    module = load(source, case.file)
    HOOKS.module_dict.clear()  # packages have different hooks of one name
    HOOKS.module_dict.update(known)
    hook = getattr(module, case.name)(**case.arguments)
    notes: list[Any] = []
    hooks = [(hook, "ABOVE_NORMAL" if case.steps else case.priority)]
    if not case.steps:
        hooks.append((OptimizerHook(), "ABOVE_NORMAL"))
    hooks.append((recorder(Hook, notes), "LOWEST"))
    train = DataLoader(Digits(), batch_size=4, shuffle=True)
    val = DataLoader(Digits(1), batch_size=8)
    searched: list[str] = []
    logger = logging.Logger("old_code")
    logger.addHandler(logging.NullHandler())
    if which == "trainer":
        import lightning as L

        from lightning_hooks import HookAdapter, TrainStepModule

        adapter = HookAdapter(
            hooks,
            work_dir=work_dir,
            by_epoch=case.by_epoch,
            meta={},
            attributes={"search_subnet": searched.append, "logger": logger},
        )
        limit = {"max_epochs": EPOCHS} if case.by_epoch else {"max_steps": ITERATIONS}
        trainer = L.Trainer(
            **limit,
            callbacks=[adapter],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=work_dir,
        )
        trainer.fit(TrainStepModule(model, optimizer), train, val if case.val else None)
    else:
        kind = EpochBasedRunner if case.by_epoch else IterBasedRunner
        limit = {"max_epochs": EPOCHS} if case.by_epoch else {"max_iters": ITERATIONS}
        runner = kind(
            MMDataParallel(model, device_ids=[]),
            optimizer=optimizer,
            work_dir=work_dir,
            logger=logger,
            meta={},
            **limit,
        )
        runner.search_subnet = searched.append
        for one, priority in hooks:
            runner.register_hook(one, priority)
        workflow = [("train", 1), ("val", 1)] if case.val else [("train", 1)]
        runner.run([train, val][: len(workflow)], workflow)
    files = sorted(p.relative_to(work_dir).as_posix() for p in Path(work_dir).rglob("*.pkl"))
    skipped = train.dataset.skipped  # type: ignore[attr-defined]
    return {"notes": notes, "files": files, "searched": len(searched), "skipped": bool(skipped)}


def main(which: str, source: Path, out: Path) -> None:
    """Run every case; an error is a result too."""
    # six is not worth an installation: mmdet takes these two from it
    sys.modules["six.moves"] = moves = ModuleType("six.moves")
    moves.__dict__.update(map=map, zip=zip)
    sys.modules["six"] = ModuleType("six")
    results: dict[str, Any] = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as work_dir:
            try:
                results[name] = run(case, which, source, work_dir)
            except Exception as error:
                traceback.print_exc()
                results[name] = {"error": f"{type(error).__name__}: {error}"}
    out.write_text(json.dumps(results))


if __name__ == "__main__":
    which, source, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if which == "mmcv":
        import oracle  # noqa: F401

        with mock.patch("time.sleep"):
            main(which, source, out)
    else:
        from lightning_hooks.standin.finder import Finder

        sys.meta_path.insert(0, Finder())  # also before a real mmcv
        main(which, source, out)
