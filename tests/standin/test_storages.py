"""mmcv's storages: custom storages, lmdb, and clients that are not offered."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from support.standin import Idle, make, needs_lite


@pytest.fixture
def petrel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a project's storage of Petrel, over a dict."""
    from mmcv.fileio import BaseStorageBackend, FileClient

    class Petrel(BaseStorageBackend):
        files: dict[str, bytes] = {"s3://b/a/x.txt": b"x", "s3://b/y.txt": b"y"}  # noqa: RUF012

        def get(self, filepath: Any) -> bytes:
            return self.files[filepath]

        def get_text(self, filepath: Any, encoding: str = "utf-8") -> str:
            return self.files[filepath].decode(encoding)

        def put(self, obj: bytes, filepath: str) -> None:
            self.files[filepath] = obj

        def put_text(self, obj: str, filepath: str) -> None:
            self.put(obj.encode(), filepath)

        def remove(self, filepath: str) -> None:
            del self.files[filepath]

        def isfile(self, filepath: str) -> bool:
            return filepath in self.files

        def join_path(self, filepath: str, *more: str) -> str:
            return "/".join([filepath.rstrip("/"), *more])

        def list_dir_or_file(self, folder: str) -> list[str]:
            return [name.rpartition("/")[2] for name in self.files if name.startswith(f"{folder}/")]

    for table in ("_instances", "_backends", "_prefix_to_backends"):
        monkeypatch.setattr(FileClient, table, {**getattr(FileClient, table)})
    FileClient.register_backend("petrel", Petrel, force=True, prefixes="s3")


@needs_lite
@pytest.mark.usefixtures("petrel")
def test_a_projects_own_storage_has_the_files_of_its_prefix() -> None:
    import mmcv

    assert mmcv.FileClient.infer_client(uri="s3://b/a") is mmcv.FileClient(prefix="s3")
    assert mmcv.FileClient("petrel").name == "Petrel"
    assert mmcv.list_from_file("s3://b/y.txt") == ["y"]
    arguments = {"backend": "petrel"}
    mmcv.dump({"a": 1}, "s3://b/c.json", file_client_args=arguments)
    assert mmcv.load("s3://b/c.json", file_client_args=arguments) == {"a": 1}


@pytest.mark.parametrize("backend", ["ceph", "memcached"])
def test_a_client_that_is_not_offered_names_what_to_write(backend: str) -> None:
    import mmcv

    with pytest.raises(KeyError, match="or register a backend"):
        mmcv.FileClient(backend)
    module = importlib.import_module("mmcv.fileio.file_client")
    storage = getattr(module, f"{backend.capitalize()}Backend")
    with pytest.raises(NotImplementedError, match=r"fsspec and s3fs installed.*register_backend"):
        storage()


def test_petrel_is_s3_through_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    import mmcv

    monkeypatch.setattr(mmcv.FileClient, "_instances", {})
    assert mmcv.FileClient.infer_client(uri="s3://b/a").name == "PetrelBackend"
    mapping = {"/data": "memory://petrel"}  # a file system of fsspec in place of S3
    client = mmcv.FileClient("petrel", path_mapping=mapping)
    client.put_text("x", "/data/a/y.txt")
    assert client.get_text("/data/a/y.txt") == "x"
    assert client.isfile("/data/a/y.txt")
    assert [*client.list_dir_or_file("/data", recursive=True)] == ["a", "a/y.txt"]
    with pytest.raises(AssertionError, match="path_mapping must be a dict"):
        mmcv.FileClient("petrel", path_mapping=1)
    with pytest.warns(UserWarning, match=r"does not use ~/petreloss.conf"):
        mmcv.FileClient("petrel", conf_path="~/petreloss.conf")


def test_lmdb_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmcv.fileio import FileClient

    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(ImportError, match=r"LmdbBackend needs lmdb: pip install lmdb"):
        FileClient("lmdb", db_path="x")


def test_a_client_is_pickled_with_its_arguments() -> None:
    from mmcv.fileio import FileClient

    client = FileClient("fsspec")
    again = pickle.loads(pickle.dumps(client))
    assert again.name == copy.deepcopy(client).name == "FsspecBackend"
    assert FileClient("disk").name == "HardDiskBackend"
    assert FileClient("disk") is FileClient()


@needs_lite
def test_bad_arguments_have_mmcvs_errors() -> None:
    import mmcv
    from mmcv.fileio import FileClient
    from mmcv.parallel._functions import scatter

    for name, backend in ((1, FileClient), ("new", 0), ("new", dict)):
        with pytest.raises(TypeError, match="backend"):
            FileClient.register_backend(name, backend)
    with pytest.raises(AssertionError, match="uri must be a str or a Path"):
        FileClient.parse_uri_prefix([])
    with pytest.raises(ValueError, match="file_format must be specified since file is None"):
        mmcv.dump([1])
    with pytest.raises(KeyError, match='must contain the key "type"'):
        mmcv.build_from_cfg({"depth": 1}, mmcv.Registry("new"))
    with pytest.raises(AssertionError, match="base_class doesn't accept instance"):
        mmcv.is_method_overridden("a", object(), object)
    with pytest.raises(TypeError, match="only tensors are moved"):
        scatter(5, [-1])


@needs_lite
def test_options_with_brackets_that_do_not_match_are_refused() -> None:
    import argparse

    from mmcv import DictAction

    parser = argparse.ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    assert parser.parse_args(["--options", "a=none", "b=None"]).options == {"a": "none", "b": None}
    with pytest.raises(AssertionError, match="Imbalanced brackets"):
        parser.parse_args(["--options", "a=[(a,b), [1,2], false"])


@pytest.mark.usefixtures("petrel")
def test_checkpoints_are_written_to_petrel_and_loaded_from_it(tmp_path: Path) -> None:
    from mmcv import FileClient
    from mmcv.runner import load_checkpoint, save_checkpoint

    client = FileClient("petrel")
    model, copied = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    save_checkpoint(model, "s3://b/one.pth", meta={"epoch": 3})
    assert load_checkpoint(copied, "s3://b/one.pth")["meta"]["epoch"] == 3
    assert torch.equal(copied.weight, model.weight)
    save_checkpoint(model, "b/two.pth", file_client_args={"backend": "petrel"})
    assert client.isfile("b/two.pth")
    assert not Path("b").exists()


@pytest.mark.usefixtures("petrel")
def test_hooks_keep_their_files_in_petrel(tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    from mmcv import FileClient
    from mmcv.runner import CheckpointHook, EvalHook

    class Scores(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            return index

        def evaluate(self, results: Any, logger: Any = None) -> dict[str, float]:
            return {"acc": 3.0 - runner.epoch}

    runner = make("EpochBasedRunner", 3, tmp_path / "run", Called(), meta={})
    runner.register_hook(CheckpointHook(interval=1, out_dir="s3://b/out", max_keep_ckpts=2))
    loader = DataLoader(Scores())
    runner.register_hook(EvalHook(loader, save_best="acc", out_dir="s3://b/best"), "LOW")
    runner.run([loader], [("train", 1)])
    client = FileClient("petrel")
    assert [*client.list_dir_or_file("s3://b/out/run")] == ["epoch_2.pth", "epoch_3.pth"]
    assert [*client.list_dir_or_file("s3://b/best/run")] == ["best_acc_epoch_1.pth"]
    assert runner.meta["hook_msgs"]["last_ckpt"] == "s3://b/out/run/epoch_3.pth"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == []


class Called(Idle):
    """A callable Idle model for evaluations."""

    def forward(self, data: Any, return_loss: bool = False) -> list[Any]:
        return [data]
