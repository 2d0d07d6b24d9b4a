"""``Checkpointer`` of detectron2 and cvpods: saves and loads a model's files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.storage import files, torch_files

__all__ = ["Checkpointer"]

_LAST = "last_checkpoint"


class Checkpointer:
    """Saves a model and other objects to ``{save_dir}/{name}.pth``, and loads them.

    A file contains ``model``, the state of each of ``checkpointables`` by name, and the keywords of
    ``save``. ``last_checkpoint`` in the same directory names the newest file. A file replaces an
    older one only when it is complete.

    Args:
        model: The model; a wrapper such as DistributedDataParallel is removed.
        save_dir: Directory of the files; without it nothing is saved.
        save_to_disk: Whether this process saves; by default only rank 0 does.
        checkpointables: Objects with ``state_dict()`` and ``load_state_dict()``.

    Raises:
        TypeError: for a checkpointable without ``state_dict()``.

    Source: fvcore's ``Checkpointer``, whose files these are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpointer = Checkpointer(torch.nn.Linear(1, 1), folder)
    ...     checkpointer.save("model_final", iteration=5)
    ...     checkpointer.resume_or_load("")
    {'iteration': 5}
    """

    def __init__(
        self,
        model: torch.nn.Module,
        save_dir: str = "",
        *,
        save_to_disk: bool | None = None,
        **checkpointables: Any,
    ) -> None:
        self.model = unwrap(model)
        self.save_dir = os.fspath(save_dir)
        self.save_to_disk = save_to_disk
        self.checkpointables: dict[str, Any] = {}
        for key, checkpointable in checkpointables.items():
            self.add_checkpointable(key, checkpointable)

    def add_checkpointable(self, key: str, checkpointable: Any) -> None:
        """Add an object to save.

        Raises:
            KeyError: if there is already one of that name.
        """
        if key in self.checkpointables:
            raise KeyError(f"there is a checkpointable {key!r} already")
        if not callable(getattr(checkpointable, "state_dict", None)):
            raise TypeError(f"{key} must have state_dict(), got {checkpointable!r}")
        self.checkpointables[key] = checkpointable

    def save(self, name: str, **kwargs: Any) -> None:
        """Save now; ``kwargs`` are further entries of the file."""
        if not self.save_dir or not self._saves():
            return
        state: dict[str, Any] = {"model": torch_files.to_cpu(self.model.state_dict())}
        state.update({key: one.state_dict() for key, one in self.checkpointables.items()})
        torch_files.save_torch({**state, **kwargs}, files.join(self.save_dir, f"{name}.pth"))
        self.tag_last_checkpoint(f"{name}.pth")

    def _saves(self) -> bool:
        if self.save_to_disk is not None:
            return self.save_to_disk
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        return not distributed or torch.distributed.get_rank() == 0

    def load(self, path: str, checkpointables: Sequence[str] | None = None) -> dict[str, Any]:
        """Load a file into the model and the checkpointables; return its other entries.

        Args:
            path: Path of the file; nothing is loaded if it is empty.
            checkpointables: Names of those that are loaded; all by default.
        """
        if not path:
            return {}
        state: dict[str, Any] = torch_files.load_torch(path)
        self.model.load_state_dict(state.pop("model"), strict=False)
        for key in self.checkpointables if checkpointables is None else checkpointables:
            if key in state:
                self.checkpointables[key].load_state_dict(state.pop(key))
        return state

    def resume_or_load(self, path: str, *, resume: bool = True) -> dict[str, Any]:
        """Load the newest file with all objects; without one, the weights of ``path``."""
        if resume and self.has_checkpoint():
            return self.load(self.get_checkpoint_file())
        return self.load(path, checkpointables=[])

    def has_checkpoint(self) -> bool:
        """Return whether something was saved."""
        return files.exists(files.join(self.save_dir, _LAST))

    def get_checkpoint_file(self) -> str:
        """Return the path of the newest file, or an empty string."""
        if not self.has_checkpoint():
            return ""
        system, path = files.filesystem(files.join(self.save_dir, _LAST))
        return files.join(self.save_dir, system.cat_file(path).decode().strip())

    def get_all_checkpoint_files(self) -> list[str]:
        """Return the paths of all files in the directory."""
        system, path = files.filesystem(self.save_dir)
        names = sorted(os.path.basename(file) for file in system.ls(path, detail=False))
        return [files.join(self.save_dir, name) for name in names if name.endswith(".pth")]

    def tag_last_checkpoint(self, last_filename_basename: str) -> None:
        """Write the name of the newest file to ``last_checkpoint``."""
        files.write_bytes(files.join(self.save_dir, _LAST), last_filename_basename.encode())
