"""Load the files of the wheel mmcv-lite as modules of mmcv 1.x."""

from __future__ import annotations

import builtins
import importlib.machinery
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_hooks.standin.lite import mmengine
from lightning_hooks.standin.lite.edits import EDITS, edited
from lightning_hooks.standin.lite.registries import models_of

__all__ = ["LiteLoader"]

_NEEDED = ("cv2", "PIL")


class LiteLoader(importlib.machinery.SourceFileLoader):
    """Run one of mmcv-lite's files, with an ``import`` of its own for ``mmengine``.

    Nothing enters ``sys.modules`` but the module itself; MMEngine need not be installed.
    """

    def get_code(self, fullname: str) -> types.CodeType | None:
        """Return the code; of an edited file never that in ``__pycache__``."""
        if fullname not in EDITS:
            return super().get_code(fullname)
        source = edited(fullname, Path(self.path).read_text(encoding="utf-8"))
        return self.source_to_code(source, self.path)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the file."""
        models = models_of(module.__name__)
        names = types.SimpleNamespace(**vars(mmengine), MODELS=models)

        def import_(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            if level == 0 and name.partition(".")[0] == "mmengine":
                return names
            try:
                return builtins.__import__(name, globals, locals, fromlist or (), level)
            except ImportError as error:
                if name in _NEEDED:  # not installed, or without libGL
                    what = f"{error.msg}, which {module.__name__} needs"
                    error.msg = f"{what}: pip install opencv-python-headless pillow"
                raise

        vars(module)["__builtins__"] = {**vars(builtins), "__import__": import_}
        super().exec_module(module)
