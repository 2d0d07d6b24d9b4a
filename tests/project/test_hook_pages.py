"""Each hook has a page, whose example runs and writes the documented values and files."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch

import lightning_hooks
from lightning_hooks import HOOKS
from support.paths import ROOT

pytest.importorskip("sphinx")
sys.path.insert(0, str(ROOT / "docs"))

import hook_pages

ENTRIES: dict[str, dict[str, Any]] = hook_pages.HOOKS
RUN = [name for name, entry in ENTRIES.items() if not entry["needs"]]


def test_every_hook_has_a_page() -> None:
    ours = {name for name in HOOKS.module_dict if name in lightning_hooks.__all__}
    bases = {"BaseEMAHook", "LrUpdaterHook", "MomentumUpdaterHook", "LoggerHook", "Hook"}
    gone = {"PaviLoggerHook", "SegmindLoggerHook"}  # the errors of both name the replacement
    public = {name for name in lightning_hooks.__all__ if name.endswith("Hook")}
    assert (ours | public) - bases - gone == {*ENTRIES}


@pytest.mark.parametrize("name", RUN)
def test_its_example_runs_and_writes_what_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.endswith("LoggerHook") and name != "TextLoggerHook":
        pytest.skip("tests/loggers")
    monkeypatch.chdir(tmp_path)
    quiet = {"logger": False, "enable_model_summary": False, "accelerator": "cpu"}
    quiet |= {"enable_progress_bar": False, "limit_train_batches": 2, "limit_val_batches": 1}
    if ENTRIES[name]["guide"] != "families/checkpoint.md":
        quiet["enable_checkpointing"] = False
    for key, value in {**quiet, "default_root_dir": tmp_path}.items():
        monkeypatch.setenv(f"PL_TRAINER_{key.upper()}", str(value))
    names: dict[str, Any] = {}
    exec(compile(hook_pages.code(name), name, "exec"), names)
    entry = ENTRIES[name]
    if "beside" not in entry:
        shown = re.findall(r"`([^`]*[*.][^`]*|[a-z]+_logs)`", entry["writes"].partition(";")[0])
        files = {path.name for path in tmp_path.glob("[!.]*")} - {"checkpoints"}
        assert all(any(fnmatch(file, kind) for kind in shown) for file in files), files
        assert all(any(fnmatch(file, kind) for file in files) for kind in shown)
    names["trainer"].save_checkpoint("saved.ckpt")
    saved = torch.load("saved.ckpt", weights_only=False)
    state = {"averaging_state", "current_model_state"} & saved.keys()
    state |= {key for key in saved["callbacks"] if not key.startswith("ModelCheckpoint")}
    state |= (saved["meta"].get("hook_msgs") or {}).keys()
    assert bool(state) is not entry["saves"].startswith("Nothing")
