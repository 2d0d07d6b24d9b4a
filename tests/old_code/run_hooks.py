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
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "golden")]
from cases import CASES, Case  # noqa: E402
from packages import load  # noqa: E402
from parents import CALLS, install, test_scores  # noqa: E402

EPOCHS, ITERATIONS = 4, 10
SET = ("switch_ema", "save", "save_name", "queue_path", "cur_epoch")
"""The attributes set on the model by hooks of one package."""


class Digits(TensorDataset):
    """A dataset with the attributes used by hooks."""

    CLASSES = tuple("abcd")

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        images = torch.rand(16, 1, 5, 5, generator=generator)
        super().__init__(images, torch.arange(16) % 4)
        self.skipped: Any = None

        self.scales: list[Any] = []
        self.results: list[Any] = []
        self.labels: Any = None

    num_episodes = 3
    img_dir = None
    pipeline = SimpleNamespace(transforms=[])

    @property
    def data_infos(self) -> list[Any]:
        """The samples in mmcls's format."""
        return [
            {"img": image[0].numpy(), "gt_label": label.numpy(), "filename": f"{i}.png"}
            for i, (image, label) in enumerate(zip(*self.tensors, strict=True))
        ]

    def evaluate(self, results: Any, logger: Any = None, **kwargs: Any) -> dict[str, float]:
        """Return a score under several names and record the score."""
        scores, labels = torch.as_tensor(np.stack(results)), self.tensors[1]
        found = {
            "acc": (scores.argmax(1) == labels).float().mean().item(),
            "mIoU": scores.softmax(1)[range(16), labels].mean().item(),
        }
        self.results.append([*found.values()])
        return found

    def assign_labels(self, labels: Any) -> None:
        """Record the labels of DeepCluster's hook."""
        self.labels = [int(label) for label in labels]

    def update_dynamic_scale(self, scale: Any) -> None:
        """Record the random size of YOLOX's hook."""
        self.scales.append(list(scale))

    def update_skip_type_keys(self, keys: Any) -> None:
        """Record the keys of YOLOX's mode switch."""
        self.skipped = keys


class Shuffled(Sampler[int]):
    """A sampler whose order depends on the pass alone, since a Trainer evaluates without draws."""

    passes = 0

    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(self.passes)
        self.passes += 1
        return iter(torch.randperm(16, generator=generator).tolist())

    def __len__(self) -> int:
        return 16


class EvalLoader(DataLoader[Any]):
    """A loader of batches as dicts."""

    def __iter__(self) -> Any:
        for images, labels in super().__iter__():
            yield {"img": images, "label": labels}


class MemoryBank:
    """A stub of ODC's memory bank."""

    num_classes = 4

    def __init__(self) -> None:
        self.label_bank = torch.arange(8) % 4
        self.update_centroids_memory = lambda: CALLS.append(["update_centroids_memory"])
        self.deal_with_small_clusters = lambda: CALLS.append(["deal_with_small_clusters"])


class Backbone(nn.Module):
    """A convolution with a norm layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features of images."""
        return torch.relu(self.conv(images)).mean((2, 3))


class BoxHead(nn.Module):
    """A head with the switches of detection hooks."""

    use_l1 = False
    rate: Any = None

    def set_decay_rate(self, rate: float) -> None:
        """Record the rate."""
        self.rate = rate


class Head(nn.Linear):
    """A head with a number of classes."""

    num_classes = 4
    queue: Any = None
    use_queue: Any = None

    def init_weights(self, **kwargs: Any) -> None:
        """Reset the weights, as for DeepCluster."""
        nn.init.constant_(self.weight, 0.01)


class Model(nn.Module):
    """A small network with the attributes that the hooks of all packages use."""

    CLASSES = Digits.CLASSES
    switch_ema, save_name, config = False, "plots", {"queue_length": 8, "epoch_queue_starts": 9}

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
        self.memory_bank = MemoryBank()

    def scores(self, images: torch.Tensor) -> torch.Tensor:
        """Return the class scores."""
        return self.head(self.net(self.drop_path(self.backbone(images))))  # type: ignore[no-any-return]

    def forward(self, *args: Any, num_batches: int = 1, mode: str = "", **kwargs: Any) -> Any:
        """Return generated images, or by mode the scores or features of images."""
        if mode == "test":
            return {"head": self.scores(kwargs["img"])}
        if mode == "extract":
            return [self.backbone(kwargs["img"])]
        if "img" in kwargs:
            return self.scores(kwargs["img"])
        return torch.zeros(num_batches, 1, 5, 5)

    def neck(self, features: list[Any]) -> list[Any]:
        """Return the features unchanged."""
        return features

    def init_before_train(self) -> None:
        """Record the call."""
        self.called.append(["init_before_train"])

    def momentum_update_key_encoder(self, momentum: float) -> None:
        """Record the call."""
        self.called.append(["momentum_update_key_encoder", float(momentum)])

    def set_reweight(self, *args: Any) -> None:
        """Record the call."""
        self.called.append(["set_reweight", len(args)])

    def set_epoch(self, epoch: int) -> None:
        """Record the call."""
        self.called.append(["set_epoch", epoch])

    def set_train_epoch(self, epoch: int) -> None:
        """Record the call."""
        self.called.append(["set_train_epoch", epoch])

    def momentum_update(self) -> None:
        """Record the call."""
        self.called.append(["momentum_update", self.momentum])

    def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Compute the loss of a batch."""
        images, labels = data.values() if isinstance(data, dict) else data
        if "count" in vars(self):
            self.count += len(images)
        scores = self.scores(images)
        loss = nn.functional.cross_entropy(scores, labels) * (1 + self.loss_lambda)
        return {
            "loss": loss,
            "log_vars": {"loss": loss.item()},
            "num_samples": len(images),
            "results": {"scores": scores.detach(), "img": images.expand(-1, 3, -1, -1)},
        }

    val_step = train_step

    def state(self) -> dict[str, Any]:
        """Return all values that hooks may change."""
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
            **{name: vars(self)[name] for name in SET if name in vars(self)},
            **({"use_l1": True} if getattr(self.head, "use_l1", None) else {}),
        }


class Lines(logging.Handler):
    """Records log messages."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())


def recorder(hook_class: type, notes: list[Any], logs: bool) -> Any:
    """Return a hook that records rates, weights and optionally the log buffer at every point."""

    def note(point: str) -> Any:
        def method(self: Any, runner: Any) -> None:
            if point == "before_train_iter" and runner.iter % 3:
                return
            model = getattr(runner.model, "module", runner.model)
            at = [point, runner.epoch, runner.iter, runner.inner_iter]
            notes.append({"at": at, "lr": runner.current_lr(), **model.state()})
            if logs:
                buffer = runner.log_buffer
                notes[-1]["log"] = [sorted(buffer.val_history), sorted(buffer.output)]

        return method

    points = hook_class.stages  # type: ignore[attr-defined]
    return type("Notes", (hook_class,), {point: note(point) for point in points})()


def run(case: Case, which: str, source: Path, work_dir: str) -> dict[str, Any]:
    """Run a case."""
    from mmcv import runner as mmcv_runner
    from mmcv.cnn.bricks import DropPath
    from mmcv.parallel import MMDataParallel
    from mmcv.runner import HOOKS, EpochBasedRunner, Hook, IterBasedRunner, LogBuffer, OptimizerHook
    from mmcv.utils import ConfigDict

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
    load(source, case.file)
    HOOKS.module_dict.clear()  # packages register different hooks under one name
    HOOKS.module_dict.update(known)
    notes: list[Any] = []
    as_dicts = case.file.startswith("openmixup") and case.name == "PreciseBNHook"
    train = (EvalLoader if as_dicts else DataLoader)(Digits(), batch_size=4, sampler=Shuffled())
    val = DataLoader(Digits(1), batch_size=8)
    given: dict[str, Any] = {
        "<loader>": EvalLoader(Digits(2), batch_size=8),
        "<train>": train,
        "<data>": Digits(2),
    }
    searched: list[str] = []
    epochs: set[int] = set()
    logger = logging.Logger("old_code")
    lines: list[str] = []
    logger.addHandler(Lines(lines))
    CALLS.clear()
    sys.modules["wandb"].run = None  # type: ignore[attr-defined]
    if case.name == "OmniSourceDistSamplerSeedHook":
        train.sampler.set_epoch = epochs.add  # type: ignore[attr-defined]
    if case.name == "SubBatchNorm3dAggregationHook":
        model.sub = sys.modules["mmaction.models"].SubBatchNorm3D(2, num_splits=2)
        model.sub.split_bn.running_mean.copy_(torch.arange(4))

    def filled(value: Any) -> Any:
        """Replace names in the case with objects."""
        if isinstance(value, dict):
            return ConfigDict({key: filled(item) for key, item in value.items()})
        if isinstance(value, list):
            return [filled(item) for item in value]
        text = isinstance(value, str)
        return given.get(value, value.replace("<work_dir>", work_dir)) if text else value

    def make(file: str, name: str, arguments: Any) -> Any:
        where = mmcv_runner if file == "mmcv" else load(source, file)
        arguments = filled(arguments)
        if name == "EvalHook" and file.startswith("mmcls"):
            arguments["test_fn"] = test_scores
        if file.startswith("mmaction") and name == "EvalHook":
            arguments["test_fn"] = test_scores
        return getattr(where, name)(**arguments)

    def make_hooks() -> list[Any]:
        hook = make(case.file, case.name, case.arguments)
        hooks = [(hook, "ABOVE_NORMAL" if case.steps else case.priority)]
        if not case.steps:
            hooks.append((OptimizerHook(), "ABOVE_NORMAL"))
        hooks += [(make(*beside), priority) for *beside, priority in case.beside]
        return [*hooks, (recorder(Hook, notes, case.logs), "LOWEST")]

    attributes = {
        "search_subnet": searched.append,
        "data_loaders": [train],
        "visualization_buffer": LogBuffer(),
    }
    if case.name == "DINOHook":
        attributes["data_loader"] = [train]

    if which == "trainer":
        import lightning as L

        from lightning_hooks import HookAdapter, TrainStepModule

        adapter = HookAdapter(
            make_hooks(),
            work_dir=work_dir,
            by_epoch=case.by_epoch,
            meta={},
            attributes={"logger": logger, **attributes},
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
        for name, value in attributes.items():
            setattr(runner, name, value)
        given["<runner>"] = runner
        for one, priority in make_hooks():
            runner.register_hook(one, priority)
        workflow = [("train", 1), ("val", 1)] if case.val else [("train", 1)]
        runner.run([train, val][: len(workflow)], workflow)
    data: Any = train.dataset
    return {
        "notes": notes,
        "files": sorted(
            path.relative_to(work_dir).as_posix()
            for path in Path(work_dir).rglob("*")
            if path.suffix in (".pkl", ".pth", ".npy", ".png") and not path.is_symlink()
        ),
        "searched": len(searched),
        "skipped": bool(data.skipped),
        "scales": len(data.scales),
        "labels": data.labels,
        "epochs": sorted(epochs),
        "results": given["<loader>"].dataset.results,
        "calls": [*CALLS],
        "lines": [line for line in lines if line.startswith(("Best", "Now best", "Memory"))],
    }


def main(which: str, source: Path, out: Path, only: list[str]) -> None:
    """Run every case, or some; an error is a result too."""
    # mmdet's only imports from six
    sys.modules["six.moves"] = moves = ModuleType("six.moves")
    moves.__dict__.update(map=map, zip=zip)
    sys.modules["six"] = ModuleType("six")
    install(source)
    results: dict[str, Any] = {}
    for name, case in CASES.items():
        if (only and name not in only) or (which == "trainer" and not case.in_trainer):
            continue
        with tempfile.TemporaryDirectory() as work_dir:
            try:
                found = json.dumps(run(case, which, source, work_dir))
                results[name] = json.loads(found.replace(work_dir, "<work_dir>"))
            except Exception as error:
                traceback.print_exc()
                results[name] = {"error": f"{type(error).__name__}: {error}"}
    out.write_text(json.dumps(results))


if __name__ == "__main__":
    which, source, out, only = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    if which == "mmcv":
        import oracle  # noqa: F401

        with mock.patch("time.sleep"):
            main(which, source, out, only)
    else:
        import lightning  # noqa: F401 - it looks for packages of which parents.py has fakes

        from lightning_hooks.standin.finder import Finder

        sys.meta_path.insert(0, Finder())  # also before a real mmcv
        main(which, source, out, only)
