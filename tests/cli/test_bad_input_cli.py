"""Arbitrary command lines and files: the requested output, or a one-line error."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_hooks.cli import main
from lightning_hooks.loggers.delivery.record import Record, seal, to_line
from support.torture.bad_input import NAMES, odd, tried, tries

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("forked_checks")]
for package in ("plotext", "rich", "shtab", "tensorboard"):
    pytest.importorskip(package)
pytest.importorskip("matplotlib").use("agg")

RUNS = "touch ../victim/ran"
CODE = [
    *(f"$({RUNS})", f"`{RUNS}`", f"; {RUNS}", f"| {RUNS}", "[/red]", "[link=x]", "%(x)s", "$_{$"),
    *(f"!!python/object/apply:os.system ['{RUNS}']", f"__import__('os').system('{RUNS}')"),
]
"""Texts that run a command or fail in a shell, YAML, Python, rich or TeX."""
FILES = [
    *("run", "run/1.log.json", "run/spool/x.jsonl", "x.jsonl", "config.yaml", "config.json"),
    *("notes.txt", "link", "link/x", ".", "..", "run/spool", "empty", "absent"),
]
text = st.sampled_from([*CODE, *NAMES, "\ud800", "-", "--", "-1", "-x"]) | st.text(max_size=8)
numbers = st.sampled_from(["1", "2", "0", "-1", "1.5", "nan", "1e400", "9" * 5000]) | text
paths = st.sampled_from(FILES) | text
keys = st.sampled_from(["loss", "lr", "acc", *CODE]) | text


@st.composite
def command_lines(draw: Any) -> list[str]:
    """Draw a command line with plausible or odd arguments, too many or too few."""

    def some(*options: tuple[str, Any]) -> list[str]:
        drawn = [[name, draw(value)] for name, value in options if draw(st.integers(0, 2)) == 0]
        return [word for pair in drawn for word in pair]

    in_process = ["plot", "convert", "hooks", "replay"]
    command = draw(st.sampled_from(["check", *in_process * 8]))  # rarely: it starts a process
    target = [draw(paths) for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 2, 3])))]
    options = {
        "plot": [("--epochs", numbers), ("--iters-per-epoch", numbers), ("--keys", keys)],
        "check": [("--seconds", numbers)],
        "replay": [
            ("--to", st.sampled_from(["tensorboard", "lightning", "visdm"]) | text),
            ("--dir", st.just("run/tf_logs")),
            ("--experiment", text),
            ("--logger", text),
        ],
    }
    words = [command, *target, *some(*options.get(command, []))]
    if command == "plot":
        words += ["--out", draw(st.sampled_from(["out.png", "notes.txt", "link", "absent/x.png"]))]
    if draw(st.integers(0, 5)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.just("--json") | text))
    return words


def damaged(draw: Any, lines: list[bytes]) -> bytes:
    """Join lines after flipping bits in, or replacing, up to two lines."""
    lines = list(lines)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(lines) - 1))
        line = bytearray(lines[at])
        if line and draw(st.booleans()):
            line[draw(st.integers(0, len(line) - 1))] ^= 1 << draw(st.integers(0, 7))
        else:
            line = bytearray(draw(st.binary(max_size=20)))
        lines[at] = bytes(line)
    return b"".join(lines)


@st.composite
def logs(draw: Any) -> bytes:
    """Draw a ``.log.json``."""
    values = odd() | st.dictionaries(keys, odd(), max_size=2)
    rows = [{"mode": "train", "epoch": 1, "iter": step, "loss": 0.5, "lr": 0.1} for step in (1, 2)]
    rows.append({"mode": "val", "epoch": 1, "iter": 2, "acc": 0.5})
    for row in rows:
        if draw(st.booleans()):
            row[draw(keys)] = draw(values)
    encoded = [json.dumps(row, default=repr, skipkeys=True).encode() + b"\n" for row in rows]
    return damaged(draw, encoded)


@st.composite
def spools(draw: Any) -> bytes:
    """Draw a spool, perhaps a stranger's."""
    argument = odd() | st.sampled_from(["../victim/x", "link/x", "/dev/null", *CODE])
    head: dict[str, Any] = {
        "writer": draw(st.sampled_from(["tensorboard", "lightning", "x"]) | odd()),
        "arguments": draw(
            st.dictionaries(st.sampled_from(["log_dir", "loggers", "x"]), argument, max_size=2)
        ),
    }
    if draw(st.booleans()):
        head["writer"], head["arguments"] = "tensorboard", {"log_dir": "run/tf_logs"}
    if draw(st.integers(0, 3)) == 0:
        types = ["subprocess.Popen", "os.system", "CSVLogger", "x"]
        one = {"type": draw(st.sampled_from(types)), "save_dir": draw(argument), "args": [RUNS]}
        head = {"writer": "lightning", "arguments": {"loggers": [one]}}
    first = seal(json.dumps({"run": head}, default=repr, skipkeys=True))
    lines = [first, *(to_line(Record(n, 1.0, n, {draw(keys): 0.5})) for n in range(2))]
    return damaged(draw, [*lines, seal('{"end": {"failed": false}}')])


def tree(folder: Path) -> dict[str, Any]:
    found = {}
    for path in folder.rglob("*"):
        link = os.readlink(path) if path.is_symlink() else None
        found[str(path)] = link or (None if path.is_dir() else path.read_bytes())
    return found


@pytest.fixture(scope="module")
def above(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with foreign files and a work dir, which is the current directory."""
    folder = tmp_path_factory.mktemp("cli").resolve()
    (folder / "victim").mkdir()
    (folder / "victim" / "x").write_text("mine")
    (folder / "work").mkdir()
    here = os.getcwd()
    os.chdir(folder / "work")
    yield folder
    os.chdir(here)


def fill(log: bytes, spool: bytes, ack: bytes | None, config: str) -> None:
    """Fill the current folder."""
    for path in Path().iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    Path("run/spool").mkdir(parents=True)
    Path("empty").mkdir()
    Path("link").symlink_to("../victim")
    Path("notes.txt").write_text("mine")
    Path("run/1.log.json").write_bytes(log)
    for name in ("run/spool/x.jsonl", "x.jsonl"):
        Path(name).write_bytes(spool)
        if ack is not None:
            Path(f"{name}.ack").write_bytes(ack)
    for name in ("config.json", "config.yaml"):
        Path(name).write_text(f"{config}\n")


OURS = (
    *("out.png", "link.png", "run/tf_logs", "run/spool", "run/lightning_logs", "x.jsonl"),
    *("lightning_logs", "tf_logs"),
)
"""The files that commands may change."""


def run(above: Path, words: list[str]) -> int:
    """Run a command line; check the documented exit code and the absence of other changes."""
    before = tree(above)
    out, error = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    error.reconfigure(errors="backslashreplace")  # as Python's own
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        pytest.raises(SystemExit) as stopped,
    ):
        main(words)
    error.seek(0)
    said, code = error.read(), stopped.value.code
    assert code in (0, 1, 2)
    if code == 2 and not said.startswith("usage: "):
        assert re.fullmatch("(.* damaged lines are left out\n)*lightning-hooks: .+\n", said), said
    after = tree(above)
    changed = {path for path in {*before, *after} if before.get(path, "") != after.get(path, "")}
    ours = tuple(str(above / "work" / name) for name in OURS)
    assert not [path for path in changed if not path.startswith(ours)]
    return code


LOG = b'{"mode": "train", "epoch": 1, "iter": 1, "loss": 0.5}\n'


@tries(100, data_file=True)
@given(command_lines(), st.sampled_from([*CODE, "{}", '{"lr_config": {"policy": "step"}}']))
def test_any_command_line_is_done_or_refused_in_one_line(
    above: Path, words: list[str], config: str
) -> None:
    tried["command lines"] += 1
    fill(LOG, b"", None, config)
    run(above, words)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"loss", b"[/red]"),
        (b"loss", b"$_{$"),
        (b"loss", b"\\u001b[2J \\ud800"),
        (b"0.5", b"Infinity"),
        (b"0.5", b"1e308"),
        (b"0.5", b"9" * 400),
    ],
)
def test_odd_names_and_numbers_are_shown(above: Path, old: bytes, new: bytes) -> None:
    fill(LOG.replace(old, new), b"", None, "{}")
    assert run(above, ["plot", "run", "--out", "out.png"]) == 0


@tries(10)  # each draws a picture
@given(logs())
def test_a_log_of_any_content_is_read_or_refused(above: Path, log: bytes) -> None:
    tried["logs"] += 1
    fill(log, b"", None, "{}")
    run(above, ["plot", "run", "--out", "out.png"])


@tries(60, data_file=True)
@given(
    spools(), st.none() | st.binary(max_size=40), st.sampled_from(["x.jsonl", "run/spool/x.jsonl"])
)
def test_a_spool_of_any_content_is_sent_or_stays(
    above: Path, spool: bytes, ack: bytes | None, path: str
) -> None:
    tried["spools"] += 1
    fill(LOG, spool, ack, "{}")
    if run(above, ["replay", path, "--to", "tensorboard", "--dir", "run/tf_logs"]):
        assert Path(path).read_bytes() == spool


def test_a_picture_of_more_iterations_than_can_be_drawn_is_refused(above: Path) -> None:
    config = '{"lr_config": {"policy": "step", "step": 1}, "total_epochs": 2}'
    fill(LOG, b"", None, config)
    assert run(above, ["plot", "config.json", "--iters-per-epoch", "9" * 30]) == 2
