"""Run hooks of the sister libraries: ``run_sisters.py WAY packages out.json``.

The way is ``library``: in the library's trainer; ``trainer``: in a HookAdapter of a
``lightning.Trainer``; ``ours``: the dialect's hooks of the same names in a ``lightning.Trainer``.
Further arguments select cases.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "old_code"), str(HERE.parents[1])]

from sister_packages import make_importable  # noqa: E402

WAYS = {
    "library": "under_library",
    "trainer": "under_us",
    "ours": "with_ours",
}


def main(which: str, directory: Path, out: Path, only: list[str]) -> None:
    """Run every case; an error is a result too."""
    make_importable(directory)
    import run_detectron2
    import run_events
    import run_fvcore
    import run_mmengine
    import run_portable
    import torch

    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # for MMEngine's loads
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    libraries: Any = (run_mmengine, run_detectron2, run_fvcore, run_portable, run_events)
    for library in libraries:
        run = getattr(library, WAYS[which], None)
        cases: Any = library.CASES if run is not None else {}
        for name in cases:
            if only and name not in only:
                continue
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                try:
                    results[name] = run(name, cases[name], folder)
                except Exception as error:
                    traceback.print_exc()
                    results[name] = {"error": f"{type(error).__name__}: {error}"}
                os.chdir("/")
    out.write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve(), sys.argv[4:])
