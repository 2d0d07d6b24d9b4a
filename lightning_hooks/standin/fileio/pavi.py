"""Checkpoints in Pavi's storage, through a module ``pavi`` where there is one."""

from __future__ import annotations

import importlib
import os
import tempfile
from typing import Any

import torch

from lightning_hooks.storage import torch_files

__all__ = ["load_from_pavi", "save_to_pavi"]

PREFIX = "pavi://"


def load_from_pavi(filename: str, map_location: Any = None) -> Any:
    """Download a checkpoint and load it.

    Raises:
        AssertionError: if the path does not begin with ``pavi://``.
    """
    if not filename.startswith(PREFIX):
        raise AssertionError(f"a path of Pavi begins with {PREFIX}, got {filename}")
    model = _module("modelcloud").get(filename.removeprefix(PREFIX))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, model.name)
        model.download(path)
        return torch_files.load_torch(path, map_location)


def save_to_pavi(checkpoint: Any, filename: str) -> None:
    """Write a checkpoint and upload it."""
    cloud = _module("modelcloud")
    parent, name = os.path.split(filename.removeprefix(PREFIX))
    root = cloud.Folder()
    try:
        model = cloud.get(parent)
    except _module("exception").NodeNotFoundError:
        model = root.create_training_model(parent)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        torch.save(checkpoint, path)
        model.create_file(path, name=name)


def _module(name: str) -> Any:
    try:
        return getattr(importlib.import_module("pavi"), name)
    except ImportError as error:
        raise ImportError(
            f"{PREFIX} needs the module pavi, which is not installed; give a path, an https:// "
            "or an s3:// address"
        ) from error
