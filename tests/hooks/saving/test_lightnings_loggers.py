"""Lightning's loggers with ``log_model`` upload the files of the saving hooks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger, MLFlowLogger, WandbLogger

from lightning_hooks import BestCheckpointHook, CheckpointHook, EvalHook, HookAdapter
from lightning_hooks.storage import checkpoints
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [  # the clients' own
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

EPOCHS = 3


def run(folder: Path, logger: Any, *callbacks: Any, **words: Any) -> None:
    words = {"enable_checkpointing": True, "max_epochs": EPOCHS, **words}
    trainer = make_trainer(folder, *callbacks, logger=logger, **words)
    trainer.fit(TinyModule(lr=0.01), make_loader(4), make_loader(2))


@pytest.fixture
def wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Run W&B without a server; yield the artifacts that its runs are given."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    given: list[Any] = []
    log_artifact = wandb.sdk.wandb_run.Run.log_artifact

    def keep(run: Any, artifact: Any, *args: Any, **kwargs: Any) -> Any:
        given.append(artifact)
        return log_artifact(run, artifact, *args, **kwargs)

    monkeypatch.setattr(wandb.sdk.wandb_run.Run, "log_artifact", keep)
    yield given
    wandb.finish()


def uploads(artifacts: list[Any]) -> list[str]:
    """Return the names of the uploaded files; each artifact holds a whole file."""
    for artifact in artifacts:
        (entry,) = artifact.manifest.entries.values()
        assert entry.size > 1000
    return [artifact.metadata["original_filename"] for artifact in artifacts]


@pytest.mark.parametrize("background", [False, True])
def test_wandb_gets_each_file(tmp_path: Path, wandb_offline: list[Any], background: bool) -> None:
    hook = CheckpointHook(interval=1, max_keep_ckpts=1, background=background)
    run(tmp_path, WandbLogger(save_dir=tmp_path, log_model="all"), hook)
    assert uploads(wandb_offline) == ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]
    assert wandb_offline[-1].metadata["CheckpointHook"] == {
        **{"monitor": None, "mode": "min", "save_last": True},
        **{"save_top_k": 1, "save_weights_only": False},
    }


@pytest.mark.parametrize("how", ["hooks", "adapter", "one hook"])
def test_wandb_gets_the_best_and_the_last_at_the_end(
    tmp_path: Path, wandb_offline: list[Any], how: str
) -> None:
    hooks: list[Any] = [
        CheckpointHook(interval=1, max_keep_ckpts=2),
        BestCheckpointHook("val_loss"),
    ]
    if how == "one hook":
        hooks = [CheckpointHook(interval=1, max_keep_ckpts=2, save_best="val_loss")]
    callbacks = [HookAdapter(hooks)] if how == "adapter" else hooks
    words = {"enable_checkpointing": False} if how == "adapter" else {}
    run(tmp_path, WandbLogger(save_dir=tmp_path, log_model=True), *callbacks, **words)
    assert sorted(uploads(wandb_offline)) == ["best_val_loss_epoch_3.pth", "epoch_3.pth"]


def test_mlflow_gets_each_file(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    where = {"tracking_uri": store, "artifact_location": str(tmp_path / "artifacts")}
    logger = MLFlowLogger("digits", **where, log_model="all")
    run(tmp_path, logger, CheckpointHook(interval=1), BestCheckpointHook("val_loss", keep_best=3))
    client = mlflow.MlflowClient(store)
    for n in range(1, EPOCHS + 1):
        for name in (f"epoch_{n}", f"best_val_loss_epoch_{n}"):
            found = {Path(one.path).name for one in client.list_artifacts(logger.run_id, name)}
            assert found == {f"{name}.pth", "metadata.yaml", "aliases.txt"}


class Seen(Logger):
    """Notes each call, as a ``ModelCheckpoint`` makes it, or fails."""

    name, version = "seen", 0

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, bool]] = []
        self.error = error

    def log_metrics(self, metrics: Any, step: int | None = None) -> None: ...

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None: ...

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        hook: ModelCheckpoint = checkpoint_callback
        path = hook.last_model_path if isinstance(hook, CheckpointHook) else hook.best_model_path
        self.calls.append((hook.__class__.__name__, Path(path).name, Path(path).is_file()))
        if self.error is not None:
            raise self.error


def test_each_saving_hook_shows_itself_after_its_own_files(tmp_path: Path) -> None:
    logger = Seen()
    evaluated = EvalHook(save_best="train_loss", rule="less", out_dir=str(tmp_path / "elsewhere"))
    run(
        tmp_path,
        logger,
        BestCheckpointHook("val_loss"),
        CheckpointHook(interval=2),
        evaluated,
        num_sanity_val_steps=0,
    )
    assert [call for call in logger.calls if call[0] == "CheckpointHook"] == [
        ("CheckpointHook", "epoch_2.pth", True),
        ("CheckpointHook", "epoch_3.pth", True),
    ]
    best = [call for call in logger.calls if call[0] == "BestCheckpointHook"]
    assert best[0] == ("BestCheckpointHook", "best_val_loss_epoch_1.pth", True)
    assert {call[0] for call in logger.calls} == {
        "CheckpointHook", "BestCheckpointHook", "EvalHook",
    }  # fmt: skip
    assert all(is_file for *_, is_file in logger.calls)


def test_a_failing_logger_costs_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "lightning_hooks")
    logger = Seen(OSError("http://me:1234@host is down"))
    run(tmp_path, logger, CheckpointHook(interval=1))
    assert (
        caplog.messages
        == [
            "CheckpointHook: Seen.after_save_checkpoint() raised OSError: http://host is down; "
            "training goes on"
        ]
        * EPOCHS
    )
    assert sorted(path.name for path in tmp_path.glob("epoch*.pth")) == [
        f"epoch_{n + 1}.pth" for n in range(EPOCHS)
    ]


def test_a_background_save_is_told_by_the_writing_thread(tmp_path: Path) -> None:
    threads = []

    class Threads(Seen):
        def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
            super().after_save_checkpoint(checkpoint_callback)
            threads.append(threading.current_thread() is threading.main_thread())

    logger = Threads()
    run(tmp_path, logger, CheckpointHook(interval=1, background=True))
    assert [name for _, name, _ in logger.calls] == [f"epoch_{n + 1}.pth" for n in range(EPOCHS)]
    assert threads == [False] * EPOCHS


class Counted(TinyModule):
    """Logs the number of the epoch at validation: each is better than the one before."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("epoch", float(self.current_epoch))


def test_a_best_file_written_beyond_the_next_validation_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoints.save

    def save_late(checkpoint: Any, target: checkpoints.Target) -> list[str]:
        time.sleep(0.5)
        return save(checkpoint, target)

    monkeypatch.setattr(checkpoints, "save", save_late)
    logger = Seen()
    hook = BestCheckpointHook("epoch", "greater", background=True)
    trainer = make_trainer(
        tmp_path, hook, logger=logger, enable_checkpointing=True, max_epochs=EPOCHS
    )
    trainer.fit(Counted(), make_loader(1), make_loader(1))
    assert logger.calls == [
        ("BestCheckpointHook", f"best_epoch_epoch_{n + 1}.pth", True) for n in range(EPOCHS)
    ]


def test_fast_dev_run_tells_nothing(tmp_path: Path) -> None:
    logger = Seen()
    run(tmp_path, logger, CheckpointHook(interval=1), fast_dev_run=True)
    assert logger.calls == []
