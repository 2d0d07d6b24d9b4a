"""``CheckpointLoader``: load a checkpoint with the loader for the prefix of the path."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
import tempfile
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from lightning_hooks.standin.fileio.file_client import FileClient
from lightning_hooks.standin.placeholders import placeholder
from lightning_hooks.standin.utils.logging import print_log
from lightning_hooks.storage import files, torch_files
from lightning_hooks.storage.file_names import as_name
from lightning_hooks.storage.layout import check_layout
from lightning_hooks.utils.arguments import shown

__all__ = [
    "PAVI",
    "CheckpointLoader",
    "load_from_ceph",
    "load_from_http",
    "load_from_local",
    "load_from_pavi",
    "load_from_torchvision",
    "save_to_pavi",
]


class CheckpointLoader:
    r"""Load a checkpoint with the loader registered for the prefix of the path.

    A prefix is a regular expression. Without a registered prefix the path is a file, local or on a
    file system of fsspec. ``http://`` files are downloaded to the cache of ``torch.hub``,
    and ``torchvision://`` gets weights from torchvision. Code in a file is never executed.
    """

    _schemes: ClassVar[dict[str, Callable[..., Any]]] = {}

    @classmethod
    def register_scheme(
        cls, prefixes: str | list[str] | tuple[str, ...], loader: Any = None, force: bool = False
    ) -> Any:
        """Register ``loader(filename, map_location)``, as a decorator or by ``loader=``."""
        if loader is None:
            return functools.partial(cls.register_scheme, prefixes, force=force)
        for prefix in [prefixes] if isinstance(prefixes, str) else prefixes:
            if prefix in cls._schemes and not force:
                raise KeyError(f"{prefix} is already registered as a prefix; force=True replaces")
            cls._schemes[prefix] = loader
        return loader

    @classmethod
    def _get_checkpoint_loader(cls, path: str) -> Callable[..., Any]:
        """Return the loader for a path; of several matching prefixes, the alphabetically last."""
        return cls._schemes[max(p for p in cls._schemes if re.match(p, path))]

    @classmethod
    def load_checkpoint(
        cls, filename: str, map_location: Any = None, logger: logging.Logger | None = None
    ) -> Any:
        """Return the content of a checkpoint."""
        loader = cls._get_checkpoint_loader(filename)
        kind = loader.__name__.removeprefix("load_from_")
        print_log(f"load checkpoint from {kind} path: {filename}", logger)
        return loader(filename, map_location)


def _read(path: str, map_location: Any, name: str = "") -> Any:
    """Read tensors and plain types; configs saved by scripts in ``meta`` become dicts.

    Args:
        path: The local or remote path.
        map_location: As of ``torch.load``.
        name: The file for the user, if not the path.

    Raises:
        DamagedCheckpointError: for nonsense under a key that is read.
    """
    configs: list[Any] = [(OrderedDict, "mmcv.utils.config.ConfigDict")]
    with torch.serialization.safe_globals(configs):
        content = torch_files.load_torch(path, map_location)
    if isinstance(content, Mapping):
        check_layout(content, name or path)
    return content


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Load a file from the local disk, a file system of fsspec or a registered storage."""
    filename = os.path.expanduser(filename)
    client = FileClient.infer_client(uri=filename)
    if not client.can_write:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "checkpoint.pth")
            Path(path).write_bytes(client.get(filename))
            return _read(path, map_location, filename)
    if files.is_local(filename) and not os.path.isfile(filename):
        raise FileNotFoundError(f"{filename} can not be found.")
    return _read(filename, map_location)


def load_from_http(filename: str, map_location: Any = None, model_dir: str | None = None) -> Any:
    """Download a file and load the weights safely; ``torch.hub`` would execute code in the file."""
    folder = model_dir or os.path.join(torch.hub.get_dir(), "checkpoints")
    name = os.path.basename(urllib.parse.urlparse(filename).path)
    path = os.path.join(folder, as_name(name))
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        torch.hub.download_url_to_file(filename, path, progress=False)
    return _read(path, map_location)


def load_from_torchvision(filename: str, map_location: Any = None) -> Any:
    """Load the weights of a model of torchvision's."""
    from torchvision.models import get_model_weights  # type: ignore[import-not-found]

    name = filename.partition("://")[2].partition(".")[0]
    weights = next(iter(get_model_weights(name)))
    return weights.get_state_dict(weights_only=True)


def load_from_ceph(filename: str, map_location: Any = None, backend: str = "petrel") -> Any:
    """Load a file of S3 through fsspec, or through a storage registered for ``s3``."""
    if backend not in ("ceph", "petrel"):
        raise ValueError(f'backend must be "ceph" or "petrel", got {shown(backend)}')
    return load_from_local(filename[filename.index("s3://") :], map_location)


PAVI = "pavi://"


def load_from_pavi(filename: str, map_location: Any = None) -> Any:
    """Load a checkpoint from Pavi.

    Raises:
        AssertionError: if the path does not begin with ``pavi://``.
    """
    if not filename.startswith(PAVI):
        raise AssertionError(f"a path of Pavi begins with {PAVI}, got {filename}")
    model = _pavi_module("modelcloud").get(filename.removeprefix(PAVI))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, model.name)
        model.download(path)
        return _read(path, map_location, filename)


def save_to_pavi(checkpoint: Any, filename: str) -> None:
    """Upload a checkpoint to Pavi."""
    cloud = _pavi_module("modelcloud")
    parent, name = os.path.split(filename.removeprefix(PAVI))
    root = cloud.Folder()
    try:
        model = cloud.get(parent)
    except _pavi_module("exception").NodeNotFoundError:
        model = root.create_training_model(parent)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        torch.save(checkpoint, path)
        model.create_file(path, name=name)


def _pavi_module(name: str) -> Any:
    try:
        return getattr(importlib.import_module("pavi"), name)
    except ImportError as error:
        raise ImportError(
            f"{PAVI} needs the module pavi, which is not installed; give a path, an https:// "
            "or an s3:// address"
        ) from error


_refused = functools.partial(placeholder, "mmcv.runner.checkpoint", kind="function")

for _prefixes, _loader in (
    ("", load_from_local),
    (("http://", "https://"), load_from_http),
    (("modelzoo://", "torchvision://"), load_from_torchvision),
    (r"(\S+:)?s3://", load_from_ceph),
    (("open-mmlab://", "openmmlab://"), _refused("load_from_openmmlab")),
    ("mmcls://", _refused("load_from_mmcls")),
    ("pavi://", load_from_pavi),
):
    CheckpointLoader.register_scheme(_prefixes, _loader)
