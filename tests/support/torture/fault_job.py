"""Break the disk of real runs; each function is a fault, its docstring the expected result.

They run in processes of their own, as in ``kill_job``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import CheckpointHook, Hook, TextLoggerHook, newest_valid
from support.logs.text import read_logs
from support.torture import kill_job
from support.torture.kills import FOREIGN, last_of, same
from support.training import make_loader, make_trainer

FAULTS: dict[str, Callable[..., None]] = {}
"""By name."""
NOBODY = 65534


def fault(job: Callable[..., None]) -> Callable[..., None]:
    """Enter a function into ``FAULTS``."""
    FAULTS[job.__name__] = job
    return job


# -- faults of the kernel ----------------------------------------------------------------------


def mount(directory: str, options: str, flags: int = 0) -> None:
    """Mount a small disk in a namespace that exists as long as the process."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_user, new_mounts = 0x10000000, 0x00020000
    if not flags and libc.unshare(new_mounts) and libc.unshare(new_user | new_mounts):
        raise OSError(ctypes.get_errno(), "no namespaces here")
    private_everywhere = 0x4000 | 0x40000
    libc.mount(None, b"/", None, private_everywhere, None)
    done = libc.mount(b"tmpfs", directory.encode(), b"tmpfs", flags, options.encode())
    if done:
        raise OSError(ctypes.get_errno(), f"cannot mount {directory}")


def remount(directory: str, options: str, read_only: bool = False) -> None:
    """Change the disk."""
    mount(directory, options, flags=32 | (1 if read_only else 0))


def can_mount() -> bool:
    """Return whether the machine permits mounts."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            mount(tempfile.gettempdir(), "size=1m")
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


# -- runs --------------------------------------------------------------------------------------


def train(directory: str, **arguments: Any) -> None:
    """As ``kill_job.train``, quickly resumed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kill_job.train(directory, **{"background": False, "by_epoch": True, **arguments})


def check_goes_on(directory: str, whole: str, **arguments: Any) -> None:
    """Check that the resumed run equals the undisturbed run."""
    train(directory, **arguments)
    found, end = last_of(Path(directory)), last_of(Path(whole))
    assert found.keys() == end.keys()
    assert all(same(found[key], end[key]) for key in found)
    if any(Path(directory).glob("2*.log.json")):
        assert read_logs(Path(directory)) == read_logs(Path(whole))
    assert list(Path(directory).glob("*.tmp")) == []


def files(directory: str) -> list[str]:
    return sorted(p.name for p in Path(directory).glob("epoch_*.pth") if p.name not in FOREIGN)


class At(Hook):
    """Calls a function at the end of an epoch."""

    def __init__(self, epoch: int, act: Callable[[], None]) -> None:
        self.epoch, self.act = epoch, act

    def before_train_epoch(self, runner: Any) -> None:
        if runner.epoch == self.epoch:
            self.act()


def short_run(directory: str, *hooks: Hook, epochs: int = 4) -> kill_job.Module:
    """A run with a checkpoint and a text log each epoch."""
    module = kill_job.Module()
    usual = CheckpointHook(interval=1, max_keep_ckpts=2), TextLoggerHook(interval=2)
    trainer = make_trainer(
        Path(directory), *usual, *hooks, max_epochs=epochs, enable_checkpointing=True
    )
    trainer.fit(module, make_loader(4), make_loader(1))
    return module


@contextlib.contextmanager
def raises_oserror(number: int, path: str) -> Iterator[None]:
    """The error of the disk comes out with the path, not torch's about positions in a file."""
    with pytest.raises((OSError, RuntimeError)) as caught:
        yield
    error: BaseException | None = caught.value
    while not isinstance(error, OSError):  # the job's later writes fail too
        assert error is not None, caught.value
        error = error.__context__
    assert (error.errno, error.strerror) == (number, os.strerror(number))
    assert path in str(error)


# -- full disks --------------------------------------------------------------------------------


def full_disk(directory: str, whole: str, **arguments: Any) -> None:
    mount(directory, "size=30m")  # two files, and not a third
    with raises_oserror(errno.ENOSPC, f"{directory}/epoch_"):
        train(directory, **arguments)
    assert files(directory) == ["epoch_1.pth", "epoch_2.pth"]
    assert list(Path(directory).glob("*.tmp")) == []
    assert newest_valid(directory) == f"{directory}/epoch_2.pth"
    remount(directory, "size=90m")
    check_goes_on(directory, whole, **arguments)


@fault
def no_space_for_a_checkpoint(directory: str, whole: str) -> None:
    """OSError with the path; both older files are whole, no part is left; goes on bit-equal."""
    full_disk(directory, whole)


@fault
def no_space_for_a_background_checkpoint(directory: str, whole: str) -> None:
    """The next save raises it; both older files are whole, no part is left; goes on bit-equal."""
    full_disk(directory, whole, background=True)


@fault
def no_space_for_the_log(directory: str, whole: str) -> None:
    """One warning; training goes on to its end, and no line is torn."""
    mount(directory, "size=1m")
    filler = Path(directory) / "filler"

    def fill() -> None:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 256)

    module = kill_job.Module()
    hooks = TextLoggerHook(interval=1), At(1, fill)
    make_trainer(Path(directory), *hooks, max_epochs=40).fit(module, make_loader(4), make_loader(1))
    assert int(module.big[0]) == 160
    rows, lines = read_logs(Path(directory))  # each is a whole line of JSON
    assert 0 < len(rows) < 160
    assert lines


# -- directories -------------------------------------------------------------------------------


def refused(directory: str, *hooks: Hook) -> None:
    with pytest.raises(PermissionError, match="nothing can be written"):
        short_run(directory, *hooks)
    assert not Path(directory, "epoch_1.pth").exists()


@fault
def no_permission(directory: str, whole: str) -> None:
    """PermissionError with the directory's name, before the first iteration."""
    os.chmod(directory, 0o555)
    os.setuid(NOBODY)  # root may do anything
    refused(directory)


@fault
def a_read_only_disk(directory: str, whole: str) -> None:
    """PermissionError with the directory's name, before the first iteration."""
    mount(directory, "size=1m")
    remount(directory, "size=1m", read_only=True)
    refused(directory)


@fault
def a_disk_that_becomes_read_only(directory: str, whole: str) -> None:
    """The error ends the run; the older files are whole."""
    mount(directory, "size=90m")
    with raises_oserror(errno.EROFS, directory):
        short_run(directory, At(2, lambda: remount(directory, "size=90m", read_only=True)))
    assert newest_valid(directory) == f"{directory}/epoch_2.pth"


@fault
def a_directory_that_vanishes(directory: str, whole: str) -> None:
    """Training goes on; it is made again for the next checkpoint."""
    module = short_run(directory, At(2, lambda: shutil.rmtree(directory)))
    assert int(module.big[0]) == 16
    assert files(directory) == ["epoch_3.pth", "epoch_4.pth"]
    assert newest_valid(directory) == f"{directory}/epoch_4.pth"


@fault
def a_temporary_folder_on_another_disk(directory: str, whole: str) -> None:
    """Nothing is moved from there: files are written beside their places."""
    elsewhere = Path(directory) / "tmp"
    elsewhere.mkdir()
    mount(str(elsewhere), "size=1m")  # too small for a checkpoint
    os.environ["TMPDIR"] = tempfile.tempdir = str(elsewhere)
    check_goes_on(directory, whole)
    assert list(elsewhere.iterdir()) == []


# -- damage ------------------------------------------------------------------------------------


def damaged(directory: str, whole: str, damage: Callable[[Path], None]) -> None:
    shutil.copytree(whole, directory, dirs_exist_ok=True)
    damage(Path(directory) / f"epoch_{kill_job.EPOCHS}.pth")
    with pytest.warns(UserWarning, match=f"epoch_{kill_job.EPOCHS - 1}.pth is taken instead"):
        newest_valid(directory)
    check_goes_on(directory, whole)


@fault
def a_truncated_checkpoint(directory: str, whole: str) -> None:
    """The one before is taken, with a warning; the run goes on bit-equal."""
    damaged(directory, whole, lambda path: os.truncate(path, path.stat().st_size // 2))


@fault
def a_flipped_bit(directory: str, whole: str) -> None:
    """The one before is taken, with a warning; the run goes on bit-equal."""

    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 4
        path.write_bytes(data)

    damaged(directory, whole, flip)


@fault
def an_empty_checkpoint(directory: str, whole: str) -> None:
    """The one before is taken, with a warning; the run goes on bit-equal."""
    damaged(directory, whole, lambda path: os.truncate(path, 0))


@fault
def a_list_of_checkpoints_that_is_no_json(directory: str, whole: str) -> None:
    """A warning; no file is taken for ours or deleted, and the next save begins a new list."""
    shutil.copytree(whole, directory, dirs_exist_ok=True)
    (Path(directory) / "checkpoints.json").write_text("{")
    with pytest.warns(UserWarning, match="is no list of checkpoints"):
        assert newest_valid(directory) is None
    before = {path: path.stat().st_mtime_ns for path in Path(directory).glob("epoch_1*.pth")}
    assert len(before) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short_run(directory, epochs=2)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert newest_valid(directory) == f"{directory}/epoch_2.pth"


if __name__ == "__main__":
    torch.set_num_threads(1)
    kill_job.work({"train": kill_job.train, **FAULTS}, **json.loads(sys.argv[1]))
