"""Write the package's list of mmcv's names: ``python -m support.mmcv_names``.

The list is the short form of ``tests/golden/names.json``, recorded with real mmcv by ``make
golden``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_hooks.standin.name_table import FILE
from support.golden import recorded

ENDING = {"class": "", "function": "()", "value": "="}


def short(modules: Mapping[str, Mapping[str, Any]]) -> str:
    r"""Return a line per module: the defined names, then the imported names.

    >>> short({"mmcv.fileio.path": {"A": "class", "fopen": {"function": "a"}, "N": "value"}})
    'mmcv.fileio.path fopen() N= : A\n'
    """
    lines = []
    for module, names in sorted(modules.items()):
        kinds = {n: w if isinstance(w, str) else next(iter(w)) for n, w in names.items()}
        words = {n: f"{n}{ENDING[kind]}" for n, kind in kinds.items() if kind in ENDING}
        imported = [n for n in words if names[n] in ("class", "function")]
        own = [n for n in words if n not in imported]
        lines.append(
            " ".join([module, *(words[n] for n in own), ":", *(words[n] for n in imported)])
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(short(recorded("names")["cases"]), encoding="utf-8")
