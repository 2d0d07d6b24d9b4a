"""A script of detectron2's shape, whole: under its DefaultTrainer, and under ours."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from typing import Any

import torch
from packages import Stub
from run_detectron2 import Place, detectron2_names, run_noted, without_library
from sister_model import loader
from sister_processes import in_two
from torch import nn

CASES: dict[str, dict[str, Any]] = {
    "detectron2.DefaultTrainer": {},
    "detectron2.DefaultTrainer, resumed": dict(resumed_to=8),
    "detectron2.DefaultTrainer, resumed from its files": dict(resumed_to=8, begun_there=True),
    "detectron2.DefaultTrainer, scaled": dict(SOLVER=dict(REFERENCE_WORLD_SIZE=2)),
    "detectron2.DefaultTrainer, two data sets": dict(DATASETS=dict(TEST=["near", "far"])),
    "detectron2.DefaultTrainer, two processes": dict(  # ours has the BatchNorm of both ranks
        processes=2, TEST=dict(PRECISE_BN=dict(ENABLED=False))
    ),
}
SOLVER = dict(
    MAX_ITER=5,
    CHECKPOINT_PERIOD=2,
    BASE_LR=0.1,
    IMS_PER_BATCH=8,
    WARMUP_ITERS=2,
    STEPS=(2, 4),
    REFERENCE_WORLD_SIZE=0,
    AMP=dict(ENABLED=False),
)
TEST = dict(EVAL_PERIOD=3, EXPECTED_RESULTS=[], PRECISE_BN=dict(ENABLED=True, NUM_ITER=2))


class Detector(nn.Module):
    """A model of detectron2's protocol: losses in training, predictions else."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, batch: Any) -> Any:
        """Two losses, or the outputs."""
        x, y = batch
        out = self.net(x)
        if not self.training:
            return out
        losses = nn.functional.mse_loss(out, y), nn.functional.l1_loss(out, y)
        return dict(zip(("loss_square", "loss_abs"), losses, strict=True))


class Error:
    """An evaluator."""

    def reset(self) -> None:
        """Begin anew."""
        self.errors: list[float] = []

    def process(self, inputs: Any, outputs: Any) -> None:
        """Note the error of a batch."""
        self.errors.append(nn.functional.mse_loss(outputs, inputs[1]).item())

    def evaluate(self) -> Any:
        """Return the mean."""
        return {"box": {"error": sum(self.errors) / len(self.errors)}}


def config(folder: str, case: dict[str, Any]) -> Any:
    """Return the config of a case."""
    from yacs.config import CfgNode

    whole = dict(
        OUTPUT_DIR=folder,
        MODEL=dict(WEIGHTS=""),
        SOLVER={**SOLVER, **case.get("SOLVER", {})},
        TEST={**TEST, **case.get("TEST", {})},
        DATASETS=case.get("DATASETS", dict(TEST=["near"])),
        DATALOADER=dict(NUM_WORKERS=0),
    )
    made = CfgNode(whole)
    made.freeze()
    return made


def rank() -> int:
    """Return the number of this process."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_initialized() else 0


def script(base: type, place: Place) -> Any:
    """Return the stranger's trainer."""

    class Trainer(base):  # type: ignore[misc]
        @classmethod
        def build_model(cls, cfg: Any) -> nn.Module:
            return Detector(place.net.net)

        @classmethod
        def build_optimizer(cls, cfg: Any, model: nn.Module) -> torch.optim.Optimizer:
            place.sgd.param_groups[0]["lr"] = cfg.SOLVER.BASE_LR
            return place.sgd

        @classmethod
        def build_lr_scheduler(cls, cfg: Any, optimizer: torch.optim.Optimizer) -> Any:
            return torch.optim.lr_scheduler.MultiStepLR(optimizer, cfg.SOLVER.STEPS, gamma=0.5)

        @classmethod
        def build_train_loader(cls, cfg: Any) -> Any:
            return [batch for _ in range(5) for batch in loader(3, seed=3 * rank())]

        @classmethod
        def build_test_loader(cls, cfg: Any, dataset_name: str) -> Any:
            return list(loader(2, dict(near=1, far=2)[dataset_name]))

        @classmethod
        def build_evaluator(cls, cfg: Any, dataset_name: str) -> Any:
            return Error()

    return Trainer


def _train(base: type, case: dict[str, Any], place: Place, hooks: list[Any]) -> None:
    case = dict(case)
    longer, begun_there = case.pop("resumed_to", None), case.pop("begun_there", False)
    loaded = "detectron2.engine.defaults" in sys.modules
    first = sys.modules["detectron2.engine.defaults"].DefaultTrainer if loaded else base
    trainer = script(first if begun_there else base, place)(config(str(place.folder), case))
    trainer.register_hooks(hooks)
    trainer.resume_or_load(resume=False)
    trainer.train()
    if longer:
        case["SOLVER"] = dict(MAX_ITER=longer)
        trainer = script(base, place)(config(str(place.folder), case))
        trainer.register_hooks(hooks)
        trainer.resume_or_load(resume=True)
        trainer.train()


def _run(d2: Any, base: type, case: dict[str, Any], folder: str) -> dict[str, Any]:
    def train(place: Place, hooks: list[Any]) -> None:
        _train(base, case, place, hooks)

    if case.get("processes"):
        one = {name: value for name, value in case.items() if name != "processes"}
        found = in_two(lambda rank: _run(d2, base, one, folder))
        return _of_both(*found)
    found = run_noted(d2, lambda *_: [], folder, train)
    # detectron2's DefaultTrainer does not call this point of its hooks
    found["notes"] = [note for note in found["notes"] if note["at"][0] != "after_backward"]
    return found


def _of_both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return what the first process has noted, and of the second what detectron2 has there too."""
    notes = [{k: note[k] for k in ("at", "lr", "weights")} for note in second["notes"]]
    return {**first, "second": notes}


def _library() -> tuple[Any, type]:
    """Return detectron2's names and its DefaultTrainer, whose file imports the whole library."""
    names = detectron2_names()
    for module in ("detectron2.utils.collect_env", "omegaconf"):  # of no use to the trainer
        sys.modules.setdefault(module, Stub(module))
    evaluation: Any = import_module("detectron2.evaluation")
    for file, name in (("evaluator", "inference_on_dataset"), ("testing", "print_csv_format")):
        real = import_module(f"detectron2.evaluation.{file}")
        setattr(evaluation, name, getattr(real, name))
    checkpoint: Any = import_module("detectron2.checkpoint")
    checkpoint.DetectionCheckpointer = import_module("fvcore.common.checkpoint").Checkpointer
    defaults: Any = import_module("detectron2.engine.defaults")
    defaults.create_ddp_model = partial(
        defaults.create_ddp_model,
        device_ids=None,  # it is written for GPUs
    )
    return names, defaults.DefaultTrainer


def under_library(name: str, case: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run the script with detectron2's DefaultTrainer."""
    return _run(*_library(), case, folder)


def under_our_trainer(name: str, case: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run the script with ours; detectron2 is loaded too."""
    from lightning_hooks.dialects.detectron2 import DefaultTrainer

    return _run(_library()[0], DefaultTrainer, case, folder)


def with_ours(name: str, case: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run the script with ours, without detectron2."""
    from lightning_hooks.dialects import detectron2 as d2

    return _run(without_library(), d2.DefaultTrainer, case, folder)
