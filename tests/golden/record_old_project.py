"""Record an old project (inherited configs, plugins, a custom runner) under real mmcv."""

import shlex
import sys
import tempfile
from typing import Any

from record_old_script import HERE, results, run

TRAIN = HERE.parent / "old_project" / "train.py"
CASES = {
    "custom_policies_and_loggers": ["child.py"],
    "frozen_stopped_and_other_data": [
        "freeze.py --cfg-options data.samples=16 log_config.interval=3"
    ],
    "two_backwards_by_iteration": ["sam_iter.py"],
    "own_runner_and_constructor_resumed": [
        "amp_runner.py --cfg-options runner.max_epochs=2",
        "amp_runner.py --resume-from {}/epoch_2.pth",
    ],
}


def record() -> dict[str, Any]:
    """Record every case."""
    command = [sys.executable, "-W", "ignore", str(HERE / "run_script.py"), "mmcv"]
    cases = {}
    for name, lines in CASES.items():
        runs = [shlex.split(line) for line in lines]
        with tempfile.TemporaryDirectory() as work_dir:
            run(command, runs, work_dir, TRAIN)
            cases[name] = {"runs": runs, **results(work_dir)}
    return {"cases": cases}
