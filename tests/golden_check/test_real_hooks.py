"""Real mmcv's classes recognise our runner and model, and each reads the other's files."""

import logging
from pathlib import Path
from typing import Any

import job
import lightning as L
import pytest
import torch
from mmcv.parallel import is_module_wrapper
from oracle import HOOKS, Hook, make_runner, mmcv_runner, run

from lightning_hooks import HookAdapter, TrainStepModule


def make_trainer(tmp_path: Path, *callbacks: Any, **kwargs: Any) -> L.Trainer:
    return L.Trainer(
        callbacks=list(callbacks),
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        **kwargs,
    )


def make_module(seed: int = 0, kind: str = "conv") -> TrainStepModule:
    model = job.make_model(seed, kind)
    return TrainStepModule(model, job.make_optimizer(model))


def optimizer_hook() -> tuple[Any, str]:
    return HOOKS.build({"type": "OptimizerHook"}), "ABOVE_NORMAL"


class Look(Hook):
    def before_run(self, runner: Any) -> None:
        self.found = {
            "wrapper": is_module_wrapper(runner.model),
            "epoch": isinstance(runner, mmcv_runner.EpochBasedRunner),
            "iter": isinstance(runner, mmcv_runner.IterBasedRunner),
            "named iter": "iter" in runner.__class__.__name__.lower(),
        }


@pytest.mark.parametrize("by_epoch", [True, False])
def test_mmcvs_isinstance_and_is_module_wrapper(by_epoch: bool, tmp_path: Path) -> None:
    look = Look()
    trainer = make_trainer(tmp_path, HookAdapter([look], by_epoch=by_epoch), max_steps=1)
    trainer.fit(make_module(), job.make_data()[0])
    assert look.found == {
        "wrapper": True,
        "epoch": by_epoch,
        "iter": not by_epoch,
        "named iter": not by_epoch,
    }


def test_mmcvs_loader_fills_the_bare_model_from_a_lightning_checkpoint(tmp_path: Path) -> None:
    hooks = [optimizer_hook(), HOOKS.build({"type": "EMAHook"})]
    trainer = make_trainer(tmp_path, HookAdapter(hooks, meta={"CLASSES": ("a",)}), max_epochs=1)
    module = make_module()
    trainer.fit(module, job.make_data()[0])
    trainer.save_checkpoint(tmp_path / "lightning.ckpt")
    bare = job.make_model(9, "conv")
    file = mmcv_runner.load_checkpoint(bare, str(tmp_path / "lightning.ckpt"), strict=True)
    trained = module.model.state_dict()
    assert all(torch.equal(v, trained[k]) for k, v in bare.state_dict().items())
    assert file["meta"]["CLASSES"] == ("a",)


def test_mmcvs_runner_resumes_from_our_runners_file_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    def ours(resume: str | None, epochs: int) -> TrainStepModule:
        class Resume(Hook):
            def before_run(self, runner: Any) -> None:
                if resume:
                    runner.resume(resume)

        module = make_module()
        checkpoint = HOOKS.build({"type": "CheckpointHook", "interval": 1})
        hooks = [optimizer_hook(), checkpoint, Resume()]
        adapter = HookAdapter(hooks, work_dir=str(tmp_path / "ours"))
        make_trainer(tmp_path, adapter, max_epochs=epochs).fit(module, job.make_data()[0])
        return module

    def theirs(resume: str | None, epochs: int) -> Any:
        model = job.make_model(0, "conv")
        runner = make_runner(
            "EpochBasedRunner",
            epochs,
            model,
            optimizer=job.make_optimizer(model),
            work_dir=str(tmp_path / "theirs"),
            meta={},
        )
        runner.register_hook(optimizer_hook()[0], "ABOVE_NORMAL")
        runner.register_hook(HOOKS.build({"type": "CheckpointHook", "interval": 1}))
        if resume:
            runner.resume(resume, map_location="cpu")
        run(runner, [job.make_data()[0]], [("train", 1)])
        return model

    whole = theirs(None, 3).state_dict()
    ours(None, 1)
    for resumed in (
        ours(str(tmp_path / "theirs" / "epoch_1.pth"), 3).model,
        theirs(str(tmp_path / "ours" / "epoch_1.pth"), 3),
    ):
        assert all(torch.equal(v, whole[k]) for k, v in resumed.state_dict().items())
    assert (tmp_path / "ours" / "latest.pth").exists()


def test_mmcvs_text_logger_writes_the_same_lines(tmp_path: Path, caplog: Any) -> None:
    def mask(line: str) -> str:
        parts = line.replace(", ", "\t").split("\t")
        return ", ".join(p for p in parts if not p.startswith(("eta", "time", "data_time")))

    def hooks() -> list[Any]:
        return [
            (HOOKS.build({"type": "StepLrUpdaterHook", "step": 1}), "VERY_HIGH"),
            (HOOKS.build({"type": "OptimizerHook", "grad_clip": {"max_norm": 1}}), "ABOVE_NORMAL"),
            (HOOKS.build({"type": "IterTimerHook"}), "LOW"),
            (HOOKS.build({"type": "TextLoggerHook", "interval": 2}), "VERY_LOW"),
        ]

    logger = logging.getLogger("side-by-side")
    lines = []
    for ours in (True, False):
        caplog.clear()
        with caplog.at_level("INFO", "side-by-side"):
            if ours:
                adapter = HookAdapter(
                    hooks(), attributes={"logger": logger}, work_dir=str(tmp_path), meta={}
                )
                trainer = make_trainer(tmp_path, adapter, max_epochs=2)
                trainer.fit(make_module(), *job.make_data())
            else:
                model = job.make_model(0, "conv")
                runner = make_runner(
                    "EpochBasedRunner",
                    2,
                    model,
                    optimizer=job.make_optimizer(model),
                    work_dir=str(tmp_path),
                    logger=logger,
                    meta={},
                )
                for hook, priority in hooks():
                    runner.register_hook(hook, priority)
                run(runner, list(job.make_data()), [("train", 1), ("val", 1)])
        lines.append([mask(m) for m in caplog.messages if m.startswith("Epoch")])
    assert lines[0] == lines[1]
    assert len(lines[0]) == 6


@pytest.mark.parametrize("by_epoch", [True, False])
def test_mmcvs_hooks_by_epoch_and_by_iteration(by_epoch: bool, tmp_path: Path) -> None:
    """The test compares the rates in every iteration."""

    class Rates(Hook):
        def __init__(self) -> None:
            self.rates: list[Any] = []

        def after_train_iter(self, runner: Any) -> None:
            self.rates.append((runner.iter, runner.epoch, runner.current_lr()))

    def hooks() -> list[Any]:
        config = {
            "type": "CosineAnnealingLrUpdaterHook",
            "min_lr": 0.0,
            "by_epoch": by_epoch,
            "warmup": "exp",
            "warmup_iters": 3,
        }
        cumulative = {"type": "GradientCumulativeOptimizerHook", "cumulative_iters": 3}
        return [(HOOKS.build(config), "VERY_HIGH"), (HOOKS.build(cumulative), "ABOVE_NORMAL")]

    ours, theirs = Rates(), Rates()
    module = make_module()
    adapter = HookAdapter([*hooks(), (ours, "LOWEST")], by_epoch=by_epoch)
    limit = {"max_epochs": 3} if by_epoch else {"max_steps": 10}
    make_trainer(tmp_path, adapter, **limit).fit(module, job.make_data()[0])
    model = job.make_model(0, "conv")
    name = "EpochBasedRunner" if by_epoch else "IterBasedRunner"
    runner = make_runner(name, 3 if by_epoch else 10, model, optimizer=job.make_optimizer(model))
    for hook, priority in hooks():
        runner.register_hook(hook, priority)
    runner.register_hook(theirs, "LOWEST")
    run(runner, [job.make_data()[0]], [("train", 1)])
    assert ours.rates == theirs.rates
    assert len(ours.rates) == (12 if by_epoch else 10)
    for name, value in model.state_dict().items():
        assert torch.equal(value, module.model.state_dict()[name])
