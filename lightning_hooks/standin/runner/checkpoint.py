"""mmcv's functions that read and write checkpoints."""

from __future__ import annotations

import io
import logging
import os
import re
import time
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from lightning_hooks.standin.fileio.checkpoint_loader import (
    PAVI,
    CheckpointLoader,
    save_to_pavi,
)
from lightning_hooks.standin.fileio.file_client import FileClient
from lightning_hooks.standin.parallel.parallel import is_module_wrapper
from lightning_hooks.standin.utils.dist import get_dist_info
from lightning_hooks.standin.utils.logging import print_log
from lightning_hooks.storage import torch_files
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.plain_types import plain
from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.secrets import without_user

__all__ = [
    "get_state_dict",
    "load_checkpoint",
    "load_state_dict",
    "save_checkpoint",
    "weights_to_cpu",
]


_load_checkpoint = CheckpointLoader.load_checkpoint


def _load_checkpoint_with_prefix(
    prefix: str, filename: str, map_location: Any = None
) -> dict[str, Any]:
    checkpoint = _load_checkpoint(filename, map_location)
    state = checkpoint.get("state_dict", checkpoint)
    start = prefix if prefix.endswith(".") else f"{prefix}."
    weights = {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}
    if not weights:
        raise AssertionError(f"{start} is not in the pretrained model")
    return weights


def load_state_dict(
    module: nn.Module,
    state_dict: dict[str, Any],
    strict: bool = False,
    logger: logging.Logger | None = None,
) -> None:
    """Load weights into a model, in a wrapper or not; report keys that do not match.

    Args:
        module: The model.
        state_dict: The weights.
        strict: Whether a mismatch is an error.
        logger: Logs the report; None prints it.

    Raises:
        RuntimeError: for a mismatch with ``strict``.
    """
    weights = OrderedDict(state_dict)
    metadata = getattr(state_dict, "_metadata", None)
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []

    def load(part: nn.Module, prefix: str = "") -> None:
        if is_module_wrapper(part):  # a submodule may be in a wrapper, too
            part = part.module  # type: ignore[assignment]
        local = {} if metadata is None else metadata.get(prefix[:-1], {})
        part._load_from_state_dict(weights, prefix, local, True, missing, unexpected, errors)
        for name, child in part._modules.items():
            if child is not None:
                load(child, f"{prefix}{name}.")

    load(module)
    missing = [key for key in missing if "num_batches_tracked" not in key]
    if unexpected:
        errors.append(f"unexpected key in source state_dict: {printable(', '.join(unexpected))}\n")
    if missing:
        errors.append(f"missing keys in source state_dict: {', '.join(missing)}\n")
    if not errors or get_dist_info()[0] != 0:
        return
    text = "\n".join(["The model and loaded state dict do not match exactly\n", *errors])
    if strict:
        raise RuntimeError(text)
    print_log(text, logger, logging.WARNING)


def load_checkpoint(
    model: nn.Module,
    filename: str,
    map_location: Any = None,
    strict: bool = False,
    logger: logging.Logger | None = None,
    revise_keys: Any = ((r"^module\.", ""),),
) -> Any:
    """Load the weights of a file into a model and return the whole checkpoint.

    Args:
        model: The model.
        filename: A path; see :class:`CheckpointLoader`.
        map_location: As for :func:`torch.load`.
        strict: Whether keys and shapes must agree.
        logger: Logs mismatched keys.
        revise_keys: Pairs ``(pattern, replacement)`` for the keys; by default the prefix
            ``module.`` is removed.
    """
    checkpoint = _load_checkpoint(filename, map_location, logger)
    if not isinstance(checkpoint, dict):
        raise RuntimeError(f"No state_dict found in checkpoint file {filename}")
    state = checkpoint.get("state_dict", checkpoint)
    revised: Any = OrderedDict(state)
    for pattern, replacement in revise_keys:
        revised = OrderedDict((re.sub(pattern, replacement, k), v) for k, v in revised.items())
    revised._metadata = getattr(state, "_metadata", OrderedDict())
    load_state_dict(model, revised, strict, logger)
    return checkpoint


def weights_to_cpu(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict on the CPU."""
    on_cpu: Any = OrderedDict((key, value.cpu()) for key, value in state_dict.items())
    on_cpu._metadata = getattr(state_dict, "_metadata", OrderedDict())
    return on_cpu  # type: ignore[no-any-return]


def get_state_dict(
    module: nn.Module, destination: Any = None, prefix: str = "", keep_vars: bool = False
) -> dict[str, Any]:
    """Return a model's state dict with the keys of the unwrapped model.

    Args:
        module: The model.
        destination: The dict to fill; by default a new dict.
        prefix: Prefix of the keys.
        keep_vars: Whether values stay attached to the autograd graph.
    """
    inner: Any = module.module if is_module_wrapper(module) else module
    state: dict[str, Any] = inner.state_dict(
        destination=destination, prefix=prefix, keep_vars=keep_vars
    )
    wrapped = [prefix + name for name, part in inner.named_modules() if is_module_wrapper(part)]
    for name in reversed(wrapped):  # the innermost first
        for keys in (state, getattr(state, "_metadata", {})):
            _rename(keys, f"{name}.module", name)
    return state


def _rename(keys: dict[str, Any], old: str, new: str) -> None:
    """Rename a part of a model in a dict's keys, in place and in order."""
    for key, value in list(keys.items()):
        del keys[key]
        keys[new + key.removeprefix(old) if f"{key}.".startswith(f"{old}.") else key] = value


def save_checkpoint(
    model: nn.Module,
    filename: str | os.PathLike[str],
    optimizer: Any = None,
    meta: dict[str, Any] | None = None,
    file_client_args: dict[str, Any] | None = None,
) -> None:
    """Write ``{meta, state_dict, optimizer}`` to a file, atomically, or to a storage.

    Args:
        model: The model, in a wrapper or not.
        filename: The path, local, of fsspec or of a storage of mmcv's.
        optimizer: An optimizer, or a dict of optimizers.
        meta: Metadata; the version and the time are added.
        file_client_args: The storage; by default determined by the path.
    """
    # here, since the module imports Lightning, which code that only loads does not need
    from lightning_hooks.engine.runner.mmcv_checkpoint import LAYOUT, optimizer_state

    if not (meta is None or isinstance(meta, dict)):
        raise TypeError(f"meta must be a dict or None, got {type(meta)}")
    inner: Any = model.module if is_module_wrapper(model) else model
    meta = {**(meta or {}), "mmcv_version": LAYOUT, "time": time.asctime()}
    if getattr(inner, "CLASSES", None) is not None:
        meta["CLASSES"] = inner.CLASSES
    checkpoint = {
        "meta": without_user(plain(meta)),
        "state_dict": torch_files.to_cpu(get_state_dict(model)),
    }
    if optimizer is not None:
        checkpoint["optimizer"] = optimizer_state(optimizer)
    filename = os.fspath(filename)
    if filename.startswith(PAVI):
        if file_client_args is not None:
            raise ValueError(f"{PAVI} takes no file_client_args, got {shown(file_client_args)}")
        save_to_pavi(checkpoint, filename)
        return
    client = FileClient.infer_client(file_client_args, filename)
    if client.can_write:
        torch_files.save_torch(checkpoint, filename)
        return
    buffer = io.BytesIO()
    torch.save(checkpoint, buffer)
    client.put(buffer.getvalue(), filename)
