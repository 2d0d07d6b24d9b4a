"""The time and modules that ``import lightning_hooks`` adds to ``import lightning.pytorch``.

Each figure comes from a new process; the cases take turns.

    python -m benchmarks imports
"""

from __future__ import annotations

import functools
import subprocess
import sys

from benchmarks.measure import Bench, in_turns

CODE = """
import sys, time, lightning.pytorch
modules, start = len(sys.modules), time.process_time()
import {}
print(time.process_time() - start, len(sys.modules) - modules, time.process_time())
"""


def measure(module: str, which: int) -> float:
    """Return a figure of an import after Lightning: seconds, new modules, or all seconds."""
    code = CODE.format(module)
    command = [sys.executable, "-W", "ignore", "-c", code]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(found[which])


def run(rounds: int = 5) -> Bench:
    """Measure in turns."""
    cases = {
        "import lightning.pytorch": functools.partial(measure, "lightning.pytorch", 2),
        "import lightning_hooks": functools.partial(measure, "lightning_hooks", 0),
    }
    bench = Bench("Import", "s", in_turns(cases, rounds))
    bench.compare_cases("import lightning_hooks", "import lightning.pytorch", 0.02)
    return bench
