"""Storages with client libraries of their own: called as mmcv calls them."""

from __future__ import annotations

import copy
import io
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from support.standin import Idle, make


class Client:
    """A client of Petrel, over a dict."""

    def __init__(self, conf_path: Any = None, enable_mc: bool = True) -> None:
        self.files: dict[str, bytes] = {"s3://b/a/x.txt": b"x", "s3://b/y.txt": b"y"}

    def Get(self, path: str) -> bytes:  # noqa: N802
        return self.files[path]

    def put(self, path: str, content: bytes) -> None:
        self.files[path] = content

    def delete(self, path: str) -> None:
        del self.files[path]

    def contains(self, path: str) -> bool:
        return path in self.files

    def isdir(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self.files)

    def list(self, folder: str) -> list[str]:
        rest = [name.removeprefix(folder) for name in self.files if name.startswith(folder)]
        return [*dict.fromkeys(n.partition("/")[0] + "/" * ("/" in n) for n in rest)]


@pytest.fixture
def petrel(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmcv.fileio import FileClient

    package: Any = types.ModuleType("petrel_client")
    package.client = types.ModuleType("petrel_client.client")
    package.client.Client = Client
    monkeypatch.setitem(sys.modules, "petrel_client", package)
    monkeypatch.setitem(sys.modules, "petrel_client.client", package.client)
    monkeypatch.setattr(FileClient, "_instances", {})


@pytest.mark.usefixtures("petrel")
def test_petrel_reads_writes_and_lists() -> None:
    from mmcv import FileClient

    client = FileClient.infer_client(uri="s3://b/a")
    assert client.name == "PetrelBackend"
    assert client is FileClient(prefix="s3")
    assert not client.allow_symlink
    assert bytes(client.get("s3://b/y.txt")) == b"y"
    assert client.get_text("s3://b\\y.txt") == "y"
    client.put_text("new", "s3://b/a/z.txt")
    assert client.exists("s3://b/a/z.txt")
    assert client.exists("s3://b/a")
    assert client.isdir("s3://b/a")
    assert not client.isfile("s3://b/a")
    assert client.join_path("s3://b/", "a", "x.txt") == "s3://b/a/x.txt"
    with client.get_local_path("s3://b/a/x.txt") as path:
        assert Path(path).read_bytes() == b"x"
    assert not Path(path).exists()
    assert {*client.list_dir_or_file("s3://b")} == {"a", "y.txt"}
    found = client.list_dir_or_file("s3://b", list_dir=False, suffix="z.txt", recursive=True)
    assert [*found] == ["a/z.txt"]
    with pytest.raises(TypeError, match="`list_dir` should be False"):
        client.list_dir_or_file("s3://b", suffix=".txt")
    client.remove("s3://b/a/z.txt")
    assert not client.exists("s3://b/a/z.txt")
    mapped = FileClient("petrel", path_mapping={"/data": "s3://b"})
    assert mapped.get_text("/data/y.txt") == "y"
    with pytest.raises(AssertionError, match="path_mapping must be a dict"):
        FileClient("petrel", path_mapping=1)


@pytest.mark.usefixtures("petrel")
def test_files_are_dumped_and_loaded_through_it() -> None:
    import mmcv

    arguments = {"backend": "petrel"}
    mmcv.dump({"a": 1}, "s3://b/c.json", file_client_args=arguments)
    assert mmcv.load("s3://b/c.json", file_client_args=arguments) == {"a": 1}


@pytest.mark.parametrize("backend", ["petrel", "ceph", "memcached", "lmdb"])
def test_without_the_library_the_error_names_it(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mmcv.fileio import FileClient

    library = {"petrel": "petrel_client", "memcached": "mc"}.get(backend, backend)
    monkeypatch.setitem(sys.modules, library, None)
    needed = {
        "memcached": {"server_list_cfg": "", "client_cfg": ""},
        "lmdb": {"db_path": "x"},
    }
    with pytest.raises(ImportError, match=f"needs the library {library}, which is not installed"):
        FileClient(backend, **needed.get(backend, {}))


def test_ceph_memcached_and_lmdb_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmcv.fileio import FileClient

    monkeypatch.setattr(FileClient, "_instances", {})
    content = {"a": b"1"}
    ceph: Any = types.ModuleType("ceph")
    ceph.S3Client = lambda: types.SimpleNamespace(Get=content.__getitem__)
    monkeypatch.setitem(sys.modules, "ceph", ceph)
    assert bytes(FileClient("ceph", path_mapping={"/": ""}).get("/a")) == b"1"

    mc: Any = types.ModuleType("mc")
    found = types.SimpleNamespace(Get=lambda key, buffer: buffer.append(content[key]))
    mc.MemcachedClient = types.SimpleNamespace(GetInstance=lambda *files: found)
    mc.pyvector, mc.ConvertBuffer = list, lambda buffer: buffer[-1]
    monkeypatch.setitem(sys.modules, "mc", mc)
    memcached = FileClient("memcached", server_list_cfg="s", client_cfg="c")
    assert memcached.get(Path("a")) == b"1"
    with pytest.raises(NotImplementedError, match="get_text"):
        memcached.get_text("a")


def test_a_client_is_pickled_with_its_arguments() -> None:
    from mmcv.fileio import FileClient

    client = FileClient("fsspec")
    again = pickle.loads(pickle.dumps(client))
    assert again.name == copy.deepcopy(client).name == "FsspecBackend"
    assert FileClient("disk").name == "HardDiskBackend"
    assert FileClient("disk") is FileClient()


def test_bad_arguments_have_mmcvs_errors() -> None:
    import mmcv
    from mmcv.fileio import FileClient
    from mmcv.parallel._functions import scatter

    for name, backend in ((1, FileClient), ("new", 0), ("new", dict)):
        with pytest.raises(TypeError, match="backend"):
            FileClient.register_backend(name, backend)
    with pytest.raises(AssertionError, match="uri must be a str or a Path"):
        FileClient.parse_uri_prefix([])
    with pytest.raises(ValueError, match="dump needs a file"):
        mmcv.dump([1])
    with pytest.raises(KeyError, match='must contain the key "type"'):
        mmcv.build_from_cfg({"depth": 1}, mmcv.Registry("new"))
    with pytest.raises(AssertionError, match="base_class must be a class"):
        mmcv.is_method_overridden("a", object(), object)
    with pytest.raises(TypeError, match="only tensors are moved"):
        scatter(5, [-1])


def test_options_with_brackets_that_do_not_match_are_refused() -> None:
    import argparse

    from mmcv import DictAction

    parser = argparse.ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    assert parser.parse_args(["--options", "a=none", "b=None"]).options == {"a": "none", "b": None}
    with pytest.raises(AssertionError, match="brackets do not match"):
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
    """An Idle model that can be called, for evaluations."""

    def forward(self, data: Any, return_loss: bool = False) -> list[Any]:
        return [data]


def test_ceph_reads_a_checkpoint_where_petrel_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmcv.fileio import FileClient
    from mmcv.runner import _load_checkpoint

    asked = []

    class Ceph:
        def Get(self, path: str) -> bytes:  # noqa: N802
            asked.append(path)
            buffer = io.BytesIO()
            torch.save({"a": 1}, buffer)
            return buffer.getvalue()

    monkeypatch.setattr(FileClient, "_instances", {})
    monkeypatch.setitem(sys.modules, "petrel_client", None)
    monkeypatch.setitem(sys.modules, "petrel_client.client", None)
    monkeypatch.setitem(sys.modules, "ceph", types.SimpleNamespace(S3Client=Ceph))
    assert _load_checkpoint("cluster:s3://b/a.pth") == {"a": 1}
    assert asked == ["cluster:s3://b/a.pth"]
