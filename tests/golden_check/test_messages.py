"""Messages between mmcv's hooks, in mmcv's runner and in a plain Trainer.

Run by ``make golden-check`` in the oracle environment.
"""

from pathlib import Path
from typing import Any

import job
import lightning as L
import pytest
from oracle import HOOKS, Hook, make_runner, run
from record_evaluation import EvalHook
from record_training import EPOCHS, SEED

from lightning_hooks import CheckpointHook, HookAdapter, TrainStepModule

SCORES = [0.3, 0.9, 0.5, 0.7, 0.8, 0.1]


class Evaluated(EvalHook):
    """Evaluates to a given score in each epoch; a best file is saved."""

    def evaluate(self, runner: Any, results: Any) -> str:
        runner.log_buffer.output["score"] = SCORES[runner.epoch]
        runner.log_buffer.ready = True
        return str(self.save_best) and SCORES[runner.epoch]


class Notes(Hook):
    """Records at every point the messages of the hooks, and whether the model trains."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.model: Any = None

    def note(self, runner: Any, point: str) -> None:
        messages = runner.meta and runner.meta.get("hook_msgs", {})
        self.model = runner.model
        shown = {k: Path(v).name if "ckpt" in k else v for k, v in (messages or {}).items()}
        self.notes.append((point, runner.epoch, runner.iter, runner.mode, shown))
        if point.startswith("before_train"):
            assert runner.model.training


for _stage in Hook.stages:
    setattr(Notes, _stage, lambda self, runner, stage=_stage: self.note(runner, stage))


def files(folder: Path) -> set[str]:
    """Return the names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("interval", [1, 2])
def test_hooks_find_the_messages_of_mmcv_at_each_point(
    interval: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmcv.engine.single_gpu_test", lambda model, loader: model.eval())
    train, validation = job.make_data(SEED)
    options = {"interval": interval, "save_best": "score", "rule": "greater"}
    work = tmp_path / "mmcv"
    model, theirs = job.make_model(SEED, "linear"), Notes()
    optimizer = job.make_optimizer(model)
    runner = make_runner(
        "EpochBasedRunner", EPOCHS, model, optimizer=optimizer, work_dir=str(work), meta={}
    )
    checkpoints = {"type": "CheckpointHook", "interval": 1, "max_keep_ckpts": 2}
    runner.register_hook(HOOKS.build(checkpoints), "NORMAL")
    runner.register_hook(Evaluated(validation, **options), "LOW")
    runner.register_hook(theirs, "LOWEST")
    run(runner, [train], [("train", 1)])

    model, ours = job.make_model(SEED, "linear"), Notes()
    folder = tmp_path / "ours"
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        callbacks=[
            CheckpointHook(interval=1, max_keep_ckpts=2),
            HookAdapter([(Evaluated(validation, **options), "LOW"), (ours, "LOWEST")], meta={}),
        ],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(TrainStepModule(model, job.make_optimizer(model)), train)
    assert ours.notes == theirs.notes
    assert ours.model.training == theirs.model.training
    assert files(folder) - files(work) == {"checkpoints.json"}
    assert files(work) <= files(folder)
