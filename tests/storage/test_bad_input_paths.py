"""Names with paths to other folders: nothing is written outside the work dir."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    Hook,
    HookAdapter,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
    newest_valid,
)
from lightning_hooks.standin.fileio.checkpoint_loader import CheckpointLoader
from lightning_hooks.storage import manifest
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
UPWARDS = ["../../x", "/../../x", "a/../../../x", "a\\..\\..\\x"]
NAMES = [*UPWARDS, "..y", "x" * 400, "line\nbreak"]


class Logs(TinyModule):
    """Logs a number under every name."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        for i, name in enumerate(NAMES):
            self.log(name, float(i + self.current_epoch))


class Trains(TinyModule):
    """Is not validated."""

    validation_step = None  # type: ignore[assignment]


class Images(Hook):
    """Adds images to the log buffer."""

    def after_train_iter(self, runner: Any) -> None:
        for name in NAMES:
            runner.log_buffer.output[f"{name}/image"] = torch.zeros(3, 4, 4)
            runner.log_buffer.output[name] = 0.5
        runner.log_buffer.ready = True


@pytest.fixture
def work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_elsewhere: None
) -> Iterator[Path]:
    """A nested work dir; fails if files appear outside."""
    deep = tmp_path / "a" / "b" / "c" / "work"
    deep.mkdir(parents=True)
    before = {path for path in tmp_path.rglob("*") if "wandb_home" not in path.parts}
    yield deep
    after = {path for path in tmp_path.rglob("*") if "wandb_home" not in path.parts}
    assert {path for path in after - before if deep not in path.parents} == set()


@pytest.mark.parametrize("name", [*UPWARDS, "x" * 400])
def test_departure_a_template_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="filename_tmpl must"):
        CheckpointHook(filename_tmpl=f"{name}_{{}}")


@pytest.mark.parametrize("template", ["{:>99999999999}", "{0.__class__}_{}", "{!r}", "{", "{a}"])
def test_a_template_is_a_name_with_a_number(template: str) -> None:
    with pytest.raises(ValueError, match="filename_tmpl must"):
        CheckpointHook(filename_tmpl=template)


def test_departure_old_hooks_save_in_the_directory_that_they_name(work: Path) -> None:
    class Saves(Hook):
        def after_run(self, runner: Any) -> None:
            with pytest.raises(ValueError, match="filename_tmpl must"):
                runner.save_checkpoint(runner.work_dir, "../../x_{}.pth")
            runner.save_checkpoint(runner.work_dir, "sub/x_{}.pth", create_symlink=False)

    make_trainer(work, Saves()).fit(Trains(), make_loader(1))
    assert (work / "sub" / "x_2.pth").is_file()


def test_the_best_by_any_name_is_in_the_work_directory(work: Path) -> None:
    best = [BestCheckpointHook(name, rule="greater") for name in NAMES]
    make_trainer(work, HookAdapter(best)).fit(Logs(), make_loader(1), make_loader(1))
    assert len(list(work.glob("best_*.pth"))) == len(NAMES)


@pytest.mark.parametrize(
    "kind",
    [
        TextLoggerHook,
        TensorboardLoggerHook,
        DvcliveLoggerHook,
        pytest.param(MlflowLoggerHook, marks=pytest.mark.slow),
        pytest.param(WandbLoggerHook, marks=pytest.mark.slow),
        pytest.param(ClearMLLoggerHook, marks=pytest.mark.slow),
        pytest.param(NeptuneLoggerHook, marks=pytest.mark.slow),
        VisdomLoggerHook,
    ],
)
def test_metrics_of_any_name_are_logged_in_the_work_directory(kind: Any, work: Path) -> None:
    options = {"strict": True, "timeout": 60} if kind is not TextLoggerHook else {}
    hooks = [Images(), kind(interval=1, by_epoch=False, **options)]
    adapter = HookAdapter(hooks, by_epoch=False)
    trainer = make_trainer(work, adapter, max_steps=2)
    trainer.fit(Trains(), make_loader(2))
    assert any(work.rglob("*"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../../x", "..", "a/../../../x", "ABSOLUTE"])
@pytest.mark.parametrize(
    ("kind", "argument"),
    [
        *((WandbLoggerHook, one) for one in ("name", "project", "group", "id")),
        *((MlflowLoggerHook, one) for one in ("exp_name", "run_name")),
        *((ClearMLLoggerHook, one) for one in ("project_name", "task_name")),
        *((NeptuneLoggerHook, one) for one in ("name", "project")),
        (VisdomLoggerHook, "env"),
        (DvcliveLoggerHook, "exp_name"),
    ],
)
def test_runs_of_any_name_are_logged_in_the_work_directory(
    kind: Any, argument: str, name: str, work: Path
) -> None:
    name = str(work.parent / "x") if name == "ABSOLUTE" else name
    options = {"init_kwargs": {"id": name}} if argument == "id" else {argument: name}
    hook = kind(interval=1, by_epoch=False, timeout=60, **options)
    make_trainer(work, HookAdapter([hook]), max_steps=2).fit(Trains(), make_loader(2))
    status = hook.status()
    left = [*work.glob("spool/*.jsonl")]  # has the values with names refused by the client
    assert status["sent"] == status["logged"] > 0 or (not status["sent"] and left)


def test_a_list_of_checkpoints_deletes_and_finds_nothing_elsewhere(work: Path) -> None:
    """A run's folder, including the list of checkpoints, may come from a stranger."""
    other = work.parent / "precious.pth"
    make_trainer(work, HookAdapter([CheckpointHook(interval=1)])).fit(Trains(), make_loader(1))
    listed = work / "checkpoints.json"
    table = json.loads(listed.read_text())
    (entry,) = table["files"]
    stolen = {**entry, "name": "../precious.pth", "size": 4, "iter": 0}
    table["files"] = [stolen, entry, {**stolen, "name": str(other)}]
    listed.write_text(json.dumps(table))
    other.write_bytes(b"mine")
    try:
        with pytest.warns(UserWarning, match=r"lists what is no checkpoint.*precious.pth'"):
            assert newest_valid(str(work)) == str(work / "epoch_1.pth")
        adapter = HookAdapter([CheckpointHook(interval=1, max_keep_ckpts=1)])
        trainer = make_trainer(work, adapter, max_epochs=2)
        with pytest.warns(UserWarning, match="neither loaded nor deleted"):
            trainer.fit(Trains(), make_loader(1), ckpt_path=str(work / "epoch_1.pth"))
        assert [e.name for e in manifest.read(str(work))] == ["epoch_2.pth"]
        assert other.read_bytes() == b"mine"
    finally:
        other.unlink(missing_ok=True)


class QuietHandler(SimpleHTTPRequestHandler):
    """Says nothing."""

    def log_message(self, *args: Any) -> None:
        pass


class Payload:
    """The payload of a malicious file, which creates a folder when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_departure_a_downloaded_checkpoint_is_data(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(work / "torch"))
    served = work / "served"
    served.mkdir()
    torch.save({"state_dict": {}, "meta": Payload(work / "made")}, served / "bad.pth")
    torch.save({"state_dict": {"w": torch.ones(1)}}, served / "good.pth")
    handler = partial(QuietHandler, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            with pytest.raises(pickle.UnpicklingError):
                CheckpointLoader.load_checkpoint(f"{address}/bad.pth")
            good = CheckpointLoader.load_checkpoint(f"{address}/good.pth")
        finally:
            server.shutdown()
    assert not (work / "made").exists()
    assert good["state_dict"]["w"].item() == 1
