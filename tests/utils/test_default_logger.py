"""Text lines and progress bars share a real terminal without damage to either."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import struct
import sys
import termios
import threading
from pathlib import Path

import pytest

from lightning_hooks.utils.default_logger import BarFriendlyHandler
from support import forks
from support.paths import ROOT
from support.processes import environment

PROGRAM = """
import sys
from support.training import TinyModule, make_loader, make_trainer
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from lightning_hooks import HookAdapter, IterTimerHook, TextLoggerHook

bar = {"tqdm": TQDMProgressBar, "rich": RichProgressBar}[sys.argv[1]]()
adapter = HookAdapter([IterTimerHook(), TextLoggerHook(interval=2)], work_dir=sys.argv[2])
trainer = make_trainer(sys.argv[2], adapter, bar, max_epochs=2, enable_progress_bar=True)
trainer.fit(TinyModule(), make_loader(4), make_loader(2))
"""


def run_in_terminal(*command: str) -> str:
    """Return the output to a terminal of 200 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    # other COLUMNS and LINES would be believed before the terminal
    env = environment(TERM="xterm", COLUMNS="200", LINES="50")
    job = forks.start(command, env, Path(os.ttyname(slave)), ROOT)

    def hang_up() -> None:
        job.join()
        os.close(slave)

    threading.Thread(target=hang_up).start()
    sent = b""
    try:
        while block := os.read(master, 4096):
            sent += block
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(master)
    assert job.exitcode == 0, sent.decode()
    return sent.decode()


@pytest.mark.parametrize("kind", ["tqdm", "rich"])
def test_each_text_line_is_a_line_of_its_own_beside_a_bar(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    sent = run_in_terminal("-c", PROGRAM, kind, str(tmp_path))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    head = r"\d{4}-\d\d-\d\d [\d:,]+ - lightning_hooks - INFO - "
    epochs = [line for line in lines if re.fullmatch(rf"{head}Epoch \[\d\]\[\d/4\]\s.*\d", line)]
    vals = [line for line in lines if re.fullmatch(rf"{head}Epoch\(val\) \[\d\]\[2\]\s.*\d", line)]
    assert (len(epochs), len(vals)) == (4, 2)
    assert not any("lightning_hooks" in line for line in lines if not re.match(head, line))
    assert "Epoch 1" in text  # the bar


def test_a_tqdm_that_cannot_be_imported_ends_no_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    record = logging.LogRecord("lightning_hooks", logging.INFO, "", 0, "a line", (), None)
    BarFriendlyHandler().emit(record)
    assert "tqdm" in capsys.readouterr().err
