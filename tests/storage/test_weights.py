"""Exported weights by file suffix: every export writes files for safetensors."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    EMAHook,
    HubCheckpointHook,
    average_checkpoints,
)
from lightning_hooks.cli import main
from support.probes import equal
from support.training import TinyModule, TinyNormModule, fit, make_loader

safetensors = pytest.importorskip("safetensors")
from safetensors.torch import load_file, load_model  # noqa: E402


def metadata(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, "pt") as file:
        found: dict[str, str] = file.metadata()
        return found


class Tied(TinyNormModule):
    """A module with a weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(4, 2)
        self.tail = torch.nn.Linear(4, 2)
        self.tail.weight = self.head.weight


class Windowed(TinyModule):
    """A module whose buffer is a view of a larger storage."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.arange(12.0).reshape(3, 4).T[1:3])


@pytest.mark.parametrize("module", [TinyModule, Tied], ids=["plain", "tied"])
def test_exports_in_both_formats_are_equal(tmp_path: Path, module: Any) -> None:
    ema, best = EMAHook(momentum=0.3, warm_up=0), BestCheckpointHook("val_loss")
    fit(tmp_path, ema, best, CheckpointHook(), module=module, val=make_loader(1), max_epochs=2)
    for hook in (ema, best):
        hook.export(str(tmp_path / "w.pth"))
        hook.export(str(tmp_path / "w.safetensors"))
        written, loaded = torch.load(tmp_path / "w.pth", weights_only=True), module()
        load_model(loaded, tmp_path / "w.safetensors")
        assert equal(loaded.state_dict(), written)
    facts = metadata(tmp_path / "w.safetensors")
    assert {"format": "pt", "metric": "val_loss", "epoch": facts["epoch"]}.items() <= facts.items()
    assert float(facts["score"]) > 0
    ema.export(str(tmp_path / "ema.safetensors"))
    of_average = metadata(tmp_path / "ema.safetensors")
    assert of_average["run"] == facts["run"]
    assert of_average["updates"] == "8"
    assert ("tail.weight" in facts) is (module is Tied)


def test_a_remote_file_has_views_of_a_larger_memory_too(tmp_path: Path) -> None:
    hook = CheckpointHook()
    trainer = fit(tmp_path, hook, module=Windowed, val=1)
    hook.export("memory://weights/w.safetensors")
    with fsspec.open("memory://weights/w.safetensors", "rb") as file:
        (tmp_path / "w.safetensors").write_bytes(file.read())
    assert equal(load_file(tmp_path / "w.safetensors"), trainer.lightning_module.state_dict())


def test_an_average_of_files_has_their_names(tmp_path: Path) -> None:
    fit(tmp_path, CheckpointHook(interval=1), module=TinyNormModule, max_epochs=2, val=1)
    paths = [tmp_path / f"epoch_{n}.pth" for n in (1, 2)]
    out = tmp_path / "soup.safetensors"
    with pytest.raises(SystemExit):
        main(["average", *map(str, paths), "--out", str(out)])
    assert equal(load_file(out), average_checkpoints(paths)["state_dict"])
    assert metadata(out)["mean_of"] == "epoch_1.pth epoch_2.pth"
    assert len(metadata(out)["run"]) == 12


class WithText(TinyModule):
    """A module with text in the state dict."""

    def get_extra_state(self) -> str:
        return "words"

    def set_extra_state(self, state: Any) -> None: ...


def exported(path: str) -> Callable[[Any], None]:
    return lambda hook: hook.export(path)


def test_other_endings_are_refused_with_those_that_are_known(tmp_path: Path) -> None:
    hooks = [EMAHook(momentum=0.3, warm_up=0), CheckpointHook(interval=1)]
    fit(tmp_path, *hooks, val=1, max_epochs=2)
    paths = [tmp_path / f"epoch_{n}.pth" for n in (1, 2)]
    for name in ("w.onnx", "w.safetensor", "w"):
        match = r"by its ending .*'\.pth' .*'\.safetensors'"
        for hook in hooks:
            with pytest.raises(ValueError, match=match):
                hook.export(str(tmp_path / name))  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match=match):
            average_checkpoints(paths, tmp_path / name)
        assert not (tmp_path / name).exists()
    with pytest.raises(ValueError, match="a place for tensors alone"):
        CheckpointHook(filename_tmpl="epoch_{}.safetensors")
    with pytest.raises(ValueError, match="format must be one of checkpoint, safetensors"):
        HubCheckpointHook("me/digits", format="onnx")


def test_values_other_than_tensors_are_named(tmp_path: Path) -> None:
    hook = CheckpointHook()
    fit(tmp_path, hook, module=WithText, val=1)
    with pytest.raises(ValueError, match=r"cannot have '_extra_state', a str"):
        hook.export(str(tmp_path / "w.safetensors"))


def test_without_the_package_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install safetensors"):
        average_checkpoints(["a.pth", "b.pth"], tmp_path / "w.safetensors")
