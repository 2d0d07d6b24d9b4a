"""The sources of loaded checkpoints and the names of weights."""

from __future__ import annotations

import shutil
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support.standin import Idle, make


@pytest.fixture(autouse=True)
def _schemes() -> Iterator[None]:
    from mmcv.runner import CheckpointLoader

    before = dict(CheckpointLoader._schemes)
    yield
    CheckpointLoader._schemes.clear()
    CheckpointLoader._schemes.update(before)


@pytest.mark.parametrize(
    ("path", "loader"),
    [
        ("https://a.b/c.pth", "http"),
        ("modelzoo://resnet50", "torchvision"),
        ("open-mmlab://vgg16", "openmmlab"),
        ("mmcls://vgg16", "mmcls"),
        ("pavi://a/b", "pavi"),
        ("s3://a/b", "ceph"),
        ("cluster:s3://a/b", "ceph"),
        ("ss3://a/b", "local"),
        (" s3://a/b", "local"),
        (":s3://a/b", "local"),
        ("a/b.pth", "local"),
    ],
)
def test_the_prefix_chooses_the_loader(path: str, loader: str) -> None:
    from mmcv.runner import CheckpointLoader

    assert CheckpointLoader._get_checkpoint_loader(path).__name__ == f"load_from_{loader}"


def test_the_longer_of_two_prefixes_wins_and_a_prefix_is_a_pattern() -> None:
    from mmcv.runner import CheckpointLoader, _load_checkpoint

    CheckpointLoader.register_scheme("zoo/", lambda name, map_location: "short")
    CheckpointLoader.register_scheme("zoo/big/", lambda name, map_location: "long")
    CheckpointLoader.register_scheme(r"v\d+://", lambda name, map_location: "pattern")
    names = ["zoo/a", "zoo/big/a", "v12://a"]
    assert [_load_checkpoint(name) for name in names] == ["short", "long", "pattern"]


def test_a_registered_storage_takes_checkpoints_and_gives_them_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from mmcv.fileio import BaseStorageBackend, FileClient
    from mmcv.runner import load_checkpoint, save_checkpoint

    monkeypatch.setattr(FileClient, "_backends", dict(FileClient._backends))
    monkeypatch.setattr(FileClient, "_prefix_to_backends", {})
    files: dict[str, bytes] = {}

    @FileClient.register_backend("oss", prefixes=["oss", "s3"])
    class Storage(BaseStorageBackend):  # type: ignore[misc]
        def get(self, filepath: str) -> bytes:
            return files[filepath]

        def put(self, obj: bytes, filepath: str) -> None:
            files[filepath] = obj

    for path in ("oss://a/b.pth", "s3://a/b.pth"):
        model, copied = nn.Linear(1, 1), nn.Linear(1, 1)
        save_checkpoint(model, path)
        load_checkpoint(copied, path)
        assert torch.equal(copied.weight, model.weight)
    assert list(files) == ["oss://a/b.pth", "s3://a/b.pth"]
    save_checkpoint(nn.Linear(1, 1), tmp_path / "new" / "c.pth")
    assert (tmp_path / "new" / "c.pth").exists()


class Node:
    """A stub of a model in Pavi's storage, backed by a folder."""

    name = "best.pth"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def download(self, path: str) -> None:
        shutil.copy(self.folder / self.name, path)

    def create_file(self, path: str, name: str) -> None:
        shutil.copy(path, self.folder / name)


@pytest.fixture
def pavi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NodeNotFoundError(Exception):
        pass

    def get(path: str) -> Node:
        if not (tmp_path / path.partition("/")[0]).exists():
            raise NodeNotFoundError
        return Node(tmp_path / path.partition("/")[0])

    root = types.SimpleNamespace(create_training_model=lambda name: Node(tmp_path / name))
    module: Any = types.ModuleType("pavi")
    module.modelcloud = types.SimpleNamespace(get=get, Folder=lambda: root)
    module.exception = types.SimpleNamespace(NodeNotFoundError=NodeNotFoundError)
    monkeypatch.setitem(sys.modules, "pavi", module)


@pytest.mark.usefixtures("pavi")
def test_checkpoints_go_to_pavi_and_come_back() -> None:
    from mmcv.runner import load_checkpoint, save_checkpoint
    from mmcv.runner.checkpoint import load_from_pavi

    model, copied = nn.Linear(1, 1), nn.Linear(1, 1)
    for _ in range(2):  # into a new and into an existing model
        save_checkpoint(model, "pavi://mine/best.pth")
    load_checkpoint(copied, "pavi://mine/best.pth")
    assert torch.equal(copied.weight, model.weight)
    with pytest.raises(AssertionError, match=r"begins with pavi://, got mine/best\.pth"):
        load_from_pavi("mine/best.pth")
    with pytest.raises(ValueError, match="takes no file_client_args"):
        save_checkpoint(model, "pavi://mine/b.pth", file_client_args={"backend": "disk"})


def test_without_pavis_module_the_error_names_what_to_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mmcv.runner import load_checkpoint

    monkeypatch.setitem(sys.modules, "pavi", None)
    with pytest.raises(ImportError, match=r"needs the module pavi, .* give a path, an https://"):
        load_checkpoint(nn.Linear(1, 1), "pavi://mine/best.pth")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.head = nn.Sequential(nn.Linear(1, 1))


def test_parts_in_wrappers_have_the_names_of_the_unwrapped_model(tmp_path: Path) -> None:
    from mmcv.runner import load_checkpoint, save_checkpoint
    from mmcv.runner.checkpoint import get_state_dict

    plain, wrapped = Block(), Block()
    wrapped.head[0] = nn.DataParallel(wrapped.head[0])
    wrapped.head = nn.DataParallel(wrapped.head)  # type: ignore[assignment]
    wrapped.norm = nn.DataParallel(wrapped.norm)  # type: ignore[assignment]
    whole = nn.DataParallel(wrapped)
    want, found = get_state_dict(plain), get_state_dict(whole)
    assert list(found) == list(want)
    assert found._metadata == want._metadata  # type: ignore[attr-defined]
    assert list(get_state_dict(whole, prefix="a.")) == [f"a.{name}" for name in want]
    save_checkpoint(whole, str(tmp_path / "a.pth"))
    load_checkpoint(plain, str(tmp_path / "a.pth"), strict=True)
    assert torch.equal(plain.head[0].weight, found["head.0.weight"])
    load_checkpoint(whole, str(tmp_path / "a.pth"), strict=True)


@pytest.mark.parametrize("by", ["the function", "the runner"])
def test_a_file_has_the_versions_of_the_layers(by: str, tmp_path: Path) -> None:
    """A layer takes weights without a version for those of an old file."""
    from mmcv.runner import load_checkpoint, save_checkpoint

    found: list[Any] = []

    class Versioned(Idle):
        _version = 3

        def _load_from_state_dict(self, state: Any, prefix: str, local: Any, *rest: Any) -> None:
            found.append(local.get("version"))
            super()._load_from_state_dict(state, prefix, local, *rest)

    model = Versioned()
    path = tmp_path / "epoch_1.pth"
    if by == "the function":
        save_checkpoint(model, str(path))
    else:
        make("EpochBasedRunner", 1, tmp_path, model).save_checkpoint(str(tmp_path))
    load_checkpoint(model, str(path))
    assert found == [3]
    assert isinstance(torch.load(path, weights_only=True)["state_dict"], OrderedDict)
