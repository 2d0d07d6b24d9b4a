"""A save killed before any file change loses no checkpoint, and the next run cleans up."""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import newest_valid
from lightning_hooks.storage import checkpoints, files, manifest
from lightning_hooks.storage.checkpoints import Target, clean_up, superseded

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

RUN, SERIES, KEPT = "0123456789ab", "series", 2
CHANGES = {"open", "os.rename", "os.remove", "os.symlink"}
"""Audit events before a change of the disk; a write begins with an open."""

keep_two = partial(superseded, limit=KEPT)


def save(folder: Path, done: int, name: str, series: str = SERIES) -> None:
    target = Target(str(folder), name, RUN, series, is_latest=True, choose_old=keep_two)
    content = {"meta": {"epoch": done, "iter": done}, "weights": torch.full((9,), done)}
    checkpoints.save(content, target)


def killed(act: Callable[[], None], at: int) -> bool:
    """Call ``act`` in a process that exits before the ``at``-th change; return whether it did."""
    with warnings.catch_warnings():  # of a fork beside threads: the child only writes files
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        left = at

        def count(event: str, arguments: Any) -> None:
            nonlocal left
            left -= event in CHANGES
            if left == 0:
                os._exit(9)

        sys.addaudithook(count)
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 9)
    return status == 9


def names(folder: Path) -> set[str]:
    found = {path.name for path in folder.iterdir() if not path.is_symlink()}
    return found - {manifest.NAME, "mine.pth"}


@pytest.mark.filterwarnings("ignore:.*is taken instead", "ignore:.*no valid checkpoint is left")
@pytest.mark.parametrize(
    ("saved", "name", "shared"),
    [(0, "3.pth", False), *((3, f"{n}.pth", shared) for n in (3, 2) for shared in (False, True))],
    ids=["first", "new", "new, two hooks", "overwritten", "overwritten, two hooks"],
)
def test_a_kill_before_any_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: int, name: str, shared: bool
) -> None:
    monkeypatch.setattr(files, "sync", lambda path: None)  # a kill loses nothing written before
    for at in itertools.count(1):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "mine.pth").write_text("mine")
        for done in range(saved):
            save(folder, done, f"{done}.pth")
        if shared:
            checkpoints.claim(Target(str(folder), "2.pth", RUN, "other", choose_old=keep_two))
        was_killed = killed(partial(save, folder, 3, name), at)
        newest = newest_valid(folder)
        done = -1 if newest is None else torch.load(newest)["meta"]["iter"]
        assert done in (saved - 1, 3)
        clean_up(str(folder), RUN, SERIES, keep_two, resumed_at=max(done, 0))
        assert not [found for found in names(folder) if found.endswith(".tmp")]
        save(folder, 4, "4.pth")
        assert newest_valid(folder) == str(folder / "4.pth")
        assert names(folder) == {entry.name for entry in manifest.read(str(folder))}
        assert len(names(folder)) <= KEPT + shared
        assert (folder / "mine.pth").read_text() == "mine"
        assert (folder / "latest.pth").resolve() == folder / "4.pth"
        if not was_killed:
            assert at > 5
            return
