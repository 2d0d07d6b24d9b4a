"""The fork server's imports; see ``support.forks``."""

import contextlib
import gc
import importlib

import lightning_hooks
import support.forks
import support.training  # noqa: F401

__all__: list[str] = []

for name in dir(lightning_hooks):
    getattr(lightning_hooks, name)  # imports its module
for name in ("omegaconf", "s3fs"):  # Lightning asks for them in a fit, and imports what is there
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
gc.freeze()  # a fork's collections need not pass over all this
