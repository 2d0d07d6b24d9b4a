"""Kill training processes at random moments, resume, and check the remaining files."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from lightning_hooks import newest_valid
from lightning_hooks.storage import manifest
from lightning_hooks.utils.concatenated import separated
from support import forks
from support.logs.text import read_logs
from support.paths import ROOT
from support.processes import environment
from support.torture import kill_job

FOREIGN = {
    "epoch_0.pth": "mine",
    "iter_1.pth": "mine",
    "notes.txt": "mine too",
    "epoch_3.pth.0123456789ab.tmp": "theirs",
    "latest.pth.tmp": "nobody knows",
    "other.log.json": "of another run",
}


class JobStarter:
    """Starts the processes of a job, one at a time.

    Args:
        job: The name of the job's module.
    """

    def __init__(self, job: str = kill_job.__name__) -> None:
        self.job = job

    def start(self, **arguments: Any) -> int:
        """Start a process; return the process id."""
        command = ["-m", self.job, json.dumps(arguments)]
        self.process = forks.start(command, environment(), Path(os.devnull), ROOT)
        assert self.process.pid is not None
        return self.process.pid

    def answer(self) -> int:
        """Wait for the end of the process; return the exit status, negative for a signal."""
        code = forks.exit_code(self.process)
        assert code is not None
        return code


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # or during the read
        return False


class Victim:
    """A repeatedly killed run in one directory, and an uninterrupted run to compare with.

    Args:
        path: The parent of both runs' directories.
        arguments: The arguments of ``kill_job.train``.
    """

    def __init__(self, path: Path, **arguments: Any) -> None:
        self.starter, self.arguments = JobStarter(), arguments
        self.directory, self.whole = path / "killed", path / "whole"
        self.saved = 0  # iterations of the newest file
        self.tally: Counter[str] = Counter()
        for directory in (self.directory, self.whole):
            directory.mkdir()
        self._place()
        start = time.monotonic()
        self.starter.start(directory=str(self.whole), **arguments)
        assert self.starter.answer() == 0, self.error(self.whole)
        self.seconds = time.monotonic() - start
        self.end = last_of(self.whole)
        self.logs = read_logs(self.whole)
        assert len(self.logs[0]) == len(self.logs[1]) > kill_job.EPOCHS
        self.witness = torch.load(self.whole / "witness.pt", weights_only=True)

    def error(self, directory: Path | None = None) -> str:
        """Return the error raised in the process."""
        path = (directory or self.directory) / "error.txt"
        return path.read_text() if path.exists() else "nothing was raised"

    def _place(self) -> None:
        for name, text in FOREIGN.items():
            (self.directory / name).write_text(text)
        self._placed = {name: self._stat(name) for name in FOREIGN}

    def _stat(self, name: str) -> Any:
        found = (self.directory / name).stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _start(self, **more: Any) -> int:
        """Start or resume; return the process's id."""
        (self.directory / "weights.pt").unlink(missing_ok=True)
        self.tally["resumes"] += self.saved > 0
        if not self.saved:  # without a checkpoint, another run with new logs begins
            for path in self.directory.glob("2*.log*"):
                path.unlink()
        return self.starter.start(directory=str(self.directory), **self.arguments, **more)

    def interrupt(self, number: int, wait: float, pause: float, *, in_write: bool) -> bool:
        """Start or resume, then send a signal; return whether the signal came before the end.

        Args:
            number: The signal.
            wait: Seconds until the signal.
            pause: Seconds between the start of a write and the signal, with ``in_write``.
            in_write: Whether to wait for a write.
        """
        pid = self._start()
        start, left = time.monotonic(), self.temporaries()
        while in_write and is_running(pid):
            if time.monotonic() - start >= wait and self.temporaries() - left:
                break
            time.sleep(0.0002)
        time.sleep(pause if in_write else wait)
        if is_running(pid):
            os.kill(pid, number)
        status = self.starter.answer()
        if status == 0:
            self.check_end()
            return False
        self._check_status(status, number)
        self.tally["in a write"] += bool(self.temporaries() - left)
        self.check_survivors()
        return True

    def interrupt_at(self, place: str, number: int) -> None:
        """Start or resume; the process sends itself a signal at a place of ``kill_job``'s."""
        self._start(place=place, number=number)
        self._check_status(self.starter.answer(), number)
        self.check_survivors()

    def _check_status(self, status: int, number: int) -> None:
        in_fit = number != signal.SIGKILL and (self.directory / "weights.pt").exists()
        # Lightning takes signals from shortly before the first batch on
        expected = (kill_job.INTERRUPTED,) if in_fit else (-number, 1)
        assert status in expected, (status, self.error())

    def temporaries(self) -> set[tuple[str, int]]:
        """Return the name and inode of each temporary file, in use or left by a kill."""
        with os.scandir(self.directory) as found:
            return {
                (entry.name, entry.inode())
                for entry in found
                if entry.name.endswith(".tmp") and entry.name not in FOREIGN
            }

    def finish(self) -> None:
        """Resume the run and let the run end."""
        self._start()
        assert self.starter.answer() == 0, self.error()
        self.check_end()

    def check_survivors(self) -> None:
        """Check the files left by a kill."""
        files = self.files()
        # the old file goes after the new file is complete, so one more may exist
        assert len(files) <= kill_job.KEPT + 1, files
        with warnings.catch_warnings():  # a warning about the incomplete file
            warnings.simplefilter("ignore")
            newest = newest_valid(str(self.directory))
        if newest is None:
            self.tally["losses"] += self.saved > 0
            assert self.saved == 0
        else:
            checkpoint = torch.load(newest, weights_only=True)
            done = checkpoint["meta"]["iter"]
            self.tally["losses"] += done < self.saved
            assert done >= self.saved
            # not of another moment
            assert torch.all(checkpoint["state_dict"]["big"] == done)
            self.saved = done
        self.check_foreign()

    def files(self) -> set[str]:
        """Return the names of the run's checkpoints."""
        found = {p.name for p in self.directory.glob("*_*.pth") if not p.is_symlink()}
        return found - FOREIGN.keys()

    def check_foreign(self) -> None:
        """Check that unrelated files are unchanged."""
        for name, text in FOREIGN.items():
            assert (self.directory / name).read_text() == text
            assert self._stat(name) == self._placed[name]

    def check_end(self) -> None:
        """Check that the resumed run equals the uninterrupted run, and clear the directory."""
        found = last_of(self.directory)
        assert found.keys() == self.end.keys()
        different = [key for key in found if not same(found[key], self.end[key])]
        assert not different
        self.check_foreign()
        assert read_logs(self.directory) == self.logs
        assert len(self.files()) == kill_job.KEPT
        assert {entry.name for entry in manifest.read(str(self.directory))} == self.files()
        assert self.temporaries() == set()
        self.tally["runs bit-equal"] += 1
        self.saved = 0
        for path in self.directory.iterdir():
            path.unlink()
        self._place()


def kill_again_and_again(victim: Victim, kills: int, draw: random.Random) -> None:
    """Kill a run the given number of times, a third of them in a write, then finish the run."""
    killed, before = 0, victim.tally["in a write"]
    while killed < kills:
        in_write = 3 * (victim.tally["in a write"] - before) <= killed  # again after a miss
        times = draw.uniform(0, 0.4) * victim.seconds, draw.uniform(0, 0.004)
        killed += victim.interrupt(signal.SIGKILL, *times, in_write=in_write)
    victim.tally["kills"] += killed
    victim.finish()


def last_of(directory: Path) -> dict[str, Any]:
    """Return the final state of a run: weights, average, optimizer, loops and the log buffer."""
    checkpoint = torch.load(str(newest_valid(directory)), weights_only=True)
    assert checkpoint["meta"]["epoch"] == kill_job.EPOCHS
    ((log_buffer,),) = checkpoint["lightning_hooks"]["log_buffer"]
    for group in log_buffer["groups"]:
        group["values"] = separated(group["values"])
    for values in (log_buffer["output"], *(group["values"] for group in log_buffer["groups"])):
        for name in ("time", "data_time"):
            values.pop(name, None)
    parts = ("state_dict", "current_model_state", "optimizer_states", "loops")
    return flatten({"log_buffer": log_buffer, **{part: checkpoint[part] for part in parts}})


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Return the values of nested dicts and lists by path."""
    if isinstance(value, dict):
        return {k: v for key, x in value.items() for k, v in flatten(x, f"{name}.{key}").items()}
    if isinstance(value, (list, tuple)):
        return flatten(dict(enumerate(value)), name)
    return {name: value}


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal to the last bit."""
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)


def check_interrupted(victim: Victim) -> None:
    """Check the raw weights, from before or after the interrupted step, and the logged lines."""
    path = victim.directory / "weights.pt"
    if not path.exists():  # the signal came before or after the fit
        return
    found = torch.load(path, weights_only=True)
    if not found["started"]:  # the weights are still to be loaded
        return
    done = found["iter"]
    for index, value in enumerate(found["now"]):
        steps = victim.witness[max(done - 1, 0) : done + 1]
        assert any(torch.equal(value, step[index]) for step in steps), (done, index)
    rows, lines = read_logs(victim.directory)
    assert rows == victim.logs[0][: len(rows)]
    assert abs(len(rows) - len(lines)) <= 1  # Ctrl-C between the two
    logged = [row for row in rows if row["mode"] == "train"]
    per_epoch = kill_job.BATCHES // 3
    epoch, batch = divmod(max(done - 1, 0), kill_job.BATCHES)
    assert len(logged) >= epoch * per_epoch + batch // 3
