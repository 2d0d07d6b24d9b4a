"""The fork server's imports; see ``support.forks``."""

import contextlib
import gc
import importlib

import lightning_hooks
import support.forks
import support.training  # noqa: F401

__all__: list[str] = []

for name in dir(lightning_hooks):
    getattr(lightning_hooks, name)  # imports the name's module
for name in ("omegaconf", "s3fs"):  # Lightning imports both in a fit if installed
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
gc.freeze()  # a fork's garbage collections skip all frozen objects
