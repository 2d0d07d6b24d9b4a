"""Checkpoints in fsspec storage: memory:// and a local S3 server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook, HookAdapter, newest_valid
from lightning_hooks.storage import checkpoints, files, manifest
from lightning_hooks.storage.layout import DamagedCheckpointError
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(botocore|aiobotocore|moto|s3fs).*"),
    # the event loop's thread of s3fs outlives the server
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Return the URL of a bucket."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    fs = fsspec.filesystem("s3", skip_instance_cache=True)
    fs.mkdir("bucket")
    try:
        yield "s3://bucket"
    finally:
        type(fs).clear_instance_cache()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.stop()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def remote(request: Any, tmp_path: Path) -> str:
    root = request.getfixturevalue("s3") if request.param == "s3" else "memory://bucket"
    return f"{root}/{tmp_path.name}"


fit = partial(training.fit, val=1, max_epochs=3)


def listed(directory: str) -> set[str]:
    fs, path = fsspec.core.url_to_fs(directory)
    fs.invalidate_cache()
    return {Path(name).name for name in fs.ls(path, detail=False)}


def damage(path: str) -> None:
    fs, target = fsspec.core.url_to_fs(path)
    data = bytearray(fs.cat_file(target))
    data[len(data) // 2] ^= 1
    fs.pipe_file(target, bytes(data))


@pytest.mark.parametrize(
    ("remote", "background"), [("memory", True), ("s3", False)], indirect=["remote"]
)
def test_a_run_and_its_resume(tmp_path, remote, background):
    def hook() -> CheckpointHook:
        return CheckpointHook(1, out_dir=remote, max_keep_ckpts=2, background=background)

    first = hook()
    fit(tmp_path, first)
    directory = f"{remote}/{tmp_path.name}"
    assert listed(directory) == {"epoch_2.pth", "epoch_3.pth", manifest.NAME}
    assert first.last_checkpoint == f"{directory}/epoch_3.pth"
    assert len(fit(tmp_path, hook(), max_epochs=4, ckpt_path="last").lightning_module.losses) == 4
    assert listed(directory) == {"epoch_3.pth", "epoch_4.pth", manifest.NAME}
    damage(f"{directory}/epoch_4.pth")
    with pytest.raises(DamagedCheckpointError, match=r"CRC-32.*valid.*epoch_3.pth"):
        fit(tmp_path, hook(), max_epochs=5, ckpt_path=f"{directory}/epoch_4.pth")
    with pytest.warns(UserWarning, match="epoch_3.pth is taken instead"):
        assert newest_valid(directory) == f"{directory}/epoch_3.pth"


def test_the_best_too(tmp_path, remote):
    hook = BestCheckpointHook("val_loss", out_dir=remote, keep_best=2)
    fit(tmp_path, hook, max_epochs=3)
    names = listed(f"{remote}/{tmp_path.name}")
    assert len(names - {manifest.NAME}) == 2
    assert {entry.name for entry in manifest.read(hook.dirpath)} == names - {manifest.NAME}


def test_the_last_and_the_best_in_one_callback_beside_the_training(tmp_path, remote):
    told: list[str] = []

    def hook() -> CheckpointHook:
        return CheckpointHook(
            interval=1,
            out_dir=remote,
            max_keep_ckpts=2,
            save_best=["val_loss", "again"],
            rule="less",
            background=True,
            on_saved=told.append,
        )

    class Module(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log_dict({"val_loss": 9.0 - self.current_epoch, "again": self.current_epoch})

    directory, modules = f"{remote}/{tmp_path.name}", []
    for epochs, resumed in ((3, {}), (4, {"ckpt_path": "last"})):
        trainer = make_trainer(tmp_path, hook(), max_epochs=epochs, enable_checkpointing=True)
        modules.append(Module())
        trainer.fit(modules[-1], make_loader(), make_loader(1), **resumed)
    assert len(modules[1].losses) == 4
    best = {"best_val_loss_epoch_4.pth", "best_again_epoch_1.pth"}
    assert listed(directory) == {"epoch_3.pth", "epoch_4.pth", manifest.NAME} | best
    assert trainer.checkpoint_callback.best_model_path == f"{directory}/best_val_loss_epoch_4.pth"
    assert {*told} >= {f"{directory}/{name}" for name in {"epoch_4.pth", *best}}
    assert not any(entry.flaw(directory) for entry in manifest.read(directory))


def test_a_hosted_hooks_work_dir(tmp_path, remote):
    adapter = HookAdapter([CheckpointHook(interval=1)], work_dir=f"{remote}/work")
    make_trainer(tmp_path, adapter).fit(TinyModule(), make_loader())
    again = HookAdapter([CheckpointHook(interval=1)], work_dir=f"{remote}/work")
    assert again.last_checkpoint == f"{remote}/work/epoch_1.pth"


def test_the_manifest_knows_a_file_before_it_is_there(remote, monkeypatch):
    path, seen = f"{remote}/a.pth", []
    fs, there = fsspec.core.url_to_fs(path)
    write = files.write_bytes

    def note(path: str, contents: bytes) -> None:
        write(path, contents)
        seen.append((len(manifest.read(remote)), fs.exists(there)))

    monkeypatch.setattr(files, "write_bytes", note)
    target = checkpoints.Target(remote, "a.pth", "0123456789ab", "series")
    content: Any = {"meta": {"epoch": 1, "iter": 1}, "x": torch.arange(5000.0)}
    checkpoints.save(content, target)
    assert seen == [(1, False)]
    (entry,) = manifest.read(remote)
    assert fs.info(there)["size"] == entry.size
    assert entry.flaw(remote) == ""
    damaged = bytearray(fs.cat_file(there))
    damaged[len(damaged) // 2] ^= 1
    fs.pipe_file(there, bytes(damaged))
    assert "is damaged" in entry.flaw(remote)


def test_an_error_leaves_no_file(remote, monkeypatch):
    target = checkpoints.Target(remote, "b.pth", "0123456789ab", "series")
    with pytest.raises(Exception, match=r"Can't (pickle|get) local object"):  # get: Python 3.13
        checkpoints.save({"meta": lambda: 0}, target)

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "record", fail)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save({"meta": {}}, target)
    assert not fsspec.core.url_to_fs(remote)[0].exists(f"{remote}/b.pth")
