"""Write the table of README.md in this folder: ``python tests/old_code/table.py``."""

from __future__ import annotations

from pathlib import Path

from cases import CASES, NOT_RUN

README = Path(__file__).with_name("README.md")
HEAD = """# Hooks of real packages

`make old-code` downloads these packages from PyPI and runs each hook below from its own file: under
the stand-in's runners, and in a `HookAdapter` in a `lightning.Trainer`. Learning rates, weights,
buffers, what is set on the model, calls of it and files are those under real mmcv 1.7.2's runner,
recorded in `tests/golden/old_code.json`. Nothing of the packages is in this repository. What a hook
file imports of its own package or of a service's client (test functions, data sets, W&B) is made
up for the test, the same for both, and notes what is called (`parents.py`). "Under a runner only":
W&B's and OSS's hooks want the checkpoint's file within the epoch, which Lightning writes after it.

"""


def text() -> str:
    """Return the whole file."""
    lines = ["| hook | file | counted in |", "|---|---|---|"]
    for name, case in CASES.items():
        unit = "epochs" if case.by_epoch else "iterations"
        lines.append(
            f"| `{name}` | `{case.file}` | {unit}{', with validation' * case.val}"
            f"{'' if case.in_trainer else ', under a runner only'} |"
        )
    lines += ["", "Not run:", "", "| hook | why |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in NOT_RUN.items()]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    README.write_text(text(), encoding="utf-8")
