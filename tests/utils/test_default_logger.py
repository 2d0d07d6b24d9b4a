"""Text lines and progress bars share a real terminal: neither breaks the other."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

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


def run_in_terminal(command: list[str]) -> str:
    """Return what a terminal of 200 columns is sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    # other COLUMNS and LINES would be believed before the terminal
    env = environment(TERM="xterm", PYTHONWARNINGS="ignore", COLUMNS="200", LINES="50")
    job = subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=env)
    os.close(slave)
    sent = b""
    try:
        while block := os.read(master, 4096):
            sent += block
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(master)
    assert job.wait() == 0, sent.decode()
    return sent.decode()


@pytest.mark.parametrize("kind", ["tqdm", "rich"])
def test_each_text_line_is_a_line_of_its_own_beside_a_bar(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    sent = run_in_terminal([sys.executable, "-c", PROGRAM, kind, str(tmp_path)])
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    head = r"\d{4}-\d\d-\d\d [\d:,]+ - lightning_hooks - INFO - "
    epochs = [line for line in lines if re.fullmatch(rf"{head}Epoch \[\d\]\[\d/4\]\s.*\d", line)]
    vals = [line for line in lines if re.fullmatch(rf"{head}Epoch\(val\) \[\d\]\[2\]\s.*\d", line)]
    assert (len(epochs), len(vals)) == (4, 2)
    assert not any("lightning_hooks" in line for line in lines if not re.match(head, line))
    assert "Epoch 1" in text  # the bar
