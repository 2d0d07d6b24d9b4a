"""mmcv's runners, all registered by the first access to a name.

The runners import Lightning: code without a training, which reads layers or checkpoints, does not.
"""

import importlib
from typing import Any

__all__ = [
    "RUNNERS",
    "EpochBasedRunner",
    "IterBasedRunner",
    "IterLoader",
    "Runner",
    "build_runner",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("builders", "epoch_based_runner", "iter_based_runner"):
            names = vars(importlib.import_module(f"{__name__}.{module}"))
            globals().update({n: names[n] for n in __all__ if n in names})
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
