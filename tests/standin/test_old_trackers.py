"""Old subclasses of mmcv's loggers find a connected client with all values."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import lightning_hooks
from support.standin import make


def run(hook: Any, work_dir: Path, **options: Any) -> None:
    runner = make("EpochBasedRunner", 2, work_dir, meta={}, **options)
    runner.register_hook(hook, "VERY_LOW")
    runner.run([DataLoader(range(4))], [("train", 1)])


def test_a_subclass_writes_to_tensorboard_from_its_first_log_on(tmp_path: Path) -> None:
    from mmcv.runner.hooks.logger import TensorboardLoggerHook

    class Figures(TensorboardLoggerHook):
        def before_run(self, runner: Any) -> None:
            super().before_run(runner)
            self.writer.add_text("config", "lr = 0.1")

        def log(self, runner: Any) -> None:
            self.writer.add_scalar("own", runner.outputs["loss"].item(), self.get_iter(runner))
            super().log(runner)

    run(Figures(interval=2), tmp_path)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tf_logs")).Reload()
    assert {"own", "train/loss"} <= {*events.Tags()["scalars"]}
    assert [event.step for event in events.Scalars("own")] == [2, 4, 6, 8]


def test_a_subclass_goes_on_with_wandbs_run_and_finishes_it_itself(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from mmcv.runner.dist_utils import master_only
    from mmcv.runner.hooks.logger.wandb import WandbLoggerHook

    seen: list[Any] = []

    class Tables(WandbLoggerHook):
        @master_only
        def before_run(self, runner: Any) -> None:
            super().before_run(runner)
            self.table = self.wandb.Table(columns=["epoch", "weight"])
            seen.append(self.wandb.run.id)

        @master_only
        def after_train_epoch(self, runner: Any) -> None:
            super().after_train_epoch(runner)
            self.table.add_data(runner.epoch + 1, runner.model.weight.item())
            artifact = self.wandb.Artifact(f"run_{self.wandb.run.id}_pred", type="evaluation")
            artifact.add(self.table, "eval_data")
            self.wandb.run.log_artifact(artifact)
            seen.append(self.wandb.run.summary["train/loss"])

        @master_only
        def after_run(self, runner: Any) -> None:
            self.wandb.finish()

    run(Tables(init_kwargs={"project": "old"}, interval=2), tmp_path)
    assert seen[1:] == [0.5, 0.5]  # previously logged values are in the client when log() returns
    assert [*(tmp_path / "wandb").glob(f"offline-run-*-{seen[0]}")]


def test_checkpoints_that_are_not_sent_from_here_are_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("wandb")
    pytest.importorskip("huggingface_hub")
    wandb = lightning_hooks.WandbLoggerHook(init_kwargs={"mode": "disabled"}, upload="last")
    hub = lightning_hooks.HubCheckpointHook("me/mine", upload="last")
    for hook in (wandb, hub):
        run(hook, tmp_path, logger=logging.getLogger("old"))
    lines = [record.getMessage() for record in caplog.records if record.name == "old"]
    assert [line for line in lines if "nothing, as this runner writes files of mmcv's" in line] == [
        "WandbLoggerHook: upload='last' sends nothing, as this runner writes files of mmcv's own "
        "layout",
        "HubCheckpointHook: it pushes nothing, as this runner writes files of mmcv's own layout",
    ]
