"""Check and apply mmcv's arguments for the directory and the file names of checkpoints."""

from __future__ import annotations

import os
import re
import string
from collections.abc import Mapping
from typing import Any

import fsspec
import lightning as L

from lightning_hooks.storage import files, manifest
from lightning_hooks.storage.file_names import is_inside
from lightning_hooks.utils.arguments import LARGEST, check_path
from lightning_hooks.utils.fsdp import shares_state

__all__ = [
    "check_strategy",
    "checked_out_dir",
    "directory_of",
    "filename_template",
    "refuse_other_storage",
]

LONGEST_NAME = 220
"""Bytes of a file name: most systems allow 255, and a temporary name is longer."""


def checked_out_dir(out_dir: Any) -> str | None:
    """Return an ``out_dir`` argument as a string, or None.

    Raises:
        TypeError: for another type.
        ImportError: if the package for the path's storage is missing; the message names the
            package.
        ValueError: for an unknown storage.
    """
    path = check_path("out_dir", out_dir)
    if path is not None and not files.is_local(path):
        protocol = path.partition("://")[0]
        try:
            fsspec.get_filesystem_class(protocol)
        except ImportError as error:
            extra = ': pip install "lightning-hooks[s3]"' if protocol == "s3" else ""
            package = getattr(error.__cause__, "name", None)
            raise ImportError(f"out_dir={path!r}: {error}{extra}", name=package) from error
        except ValueError as error:
            raise ValueError(f"out_dir={path!r}: {error}") from error
    return path


def directory_of(out_dir: str | None, work_dir: str) -> str:
    """Return the work directory, or the subdirectory of its name in ``out_dir``.

    >>> directory_of(None, "/work/run1"), directory_of("s3://bucket", "/work/run1/")
    ('/work/run1', 's3://bucket/run1')
    """
    directory = out_dir or work_dir
    if files.is_local(directory):
        directory = os.path.abspath(directory.removeprefix("file://"))
    if directory == work_dir:
        return directory
    return files.join(directory, os.path.basename(work_dir.rstrip("/" + os.sep)))


def filename_template(template: Any, by_epoch: bool) -> str:
    """Return the template of the file names, mmcv's for None.

    Raises:
        TypeError: for another type than a string.
        ValueError: for a template without exactly one number, and for names too long, outside
            the directory, or reserved.
    """
    if template is None:
        return "epoch_{}.pth" if by_epoch else "iter_{}.pth"
    if not isinstance(template, str):
        raise TypeError(f"filename_tmpl must be a str, got {template!r}")
    if not _has_number(template):
        raise ValueError(
            f"filename_tmpl must have one '{{}}' for the number, as in 'epoch_{{}}.pth', "
            f"got {template!r}"
        )
    name = template.format(LARGEST)
    if not is_inside(name):
        raise ValueError(
            f"filename_tmpl must be the name of a file in the work directory, got {template!r}"
        )
    if os.path.normpath(name).split(os.sep)[0] in (manifest.NAME, manifest.LATEST):
        raise ValueError(
            f"filename_tmpl must leave {manifest.NAME} and {manifest.LATEST} to the hook itself, "
            f"got {template!r}"
        )
    if max(len(part.encode(errors="replace")) for part in name.split("/")) > LONGEST_NAME:
        raise ValueError(f"filename_tmpl must make shorter names, got {template!r}")
    return template


def _has_number(template: str) -> bool:
    """Return whether a template has one field, a number with or without leading zeros."""
    try:
        fields = [found[1:] for found in string.Formatter().parse(template) if found[1] is not None]
    except ValueError:
        return False
    plain = all(
        name in ("", "0") and kind is None and re.fullmatch(r"0?\d{0,2}d?", spec or "")
        for name, spec, kind in fields
    )
    # "{}" is allowed once: a second "{}" would be another argument
    return plain and ([name for name, *_ in fields] == [""] or {n for n, *_ in fields} == {"0"})


def refuse_other_storage(file_client_args: Any) -> None:
    """Refuse mmcv's storages other than the disk.

    Raises:
        TypeError: for another type than a dict or None.
        ValueError: for another backend; the message names the alternative.
    """
    args = file_client_args
    if not (args is None or isinstance(args, Mapping)):
        raise TypeError(f"file_client_args must be a dict or None, got {args!r}")
    if args and (args.get("backend", "disk") != "disk" or args.get("prefix")):
        raise ValueError(
            f"file_client_args={dict(args)!r}: only the backend 'disk' is supported; for a remote "
            'storage give a path of fsspec\'s, out_dir="s3://bucket/path"'
        )


def check_strategy(
    trainer: L.Trainer, directory: str, in_parts: bool, save_optimizer: bool
) -> None:
    """Raise before the first step if the strategy cannot write the files.

    Raises:
        ValueError: for a remote directory, if checkpoints are directories; for the optimizer's
            state, if torch cannot assign the state to parameters.
    """
    name = type(trainer.strategy).__name__
    if in_parts:
        if not files.is_local(directory):
            raise ValueError(
                f"{name} writes checkpoints as directories, and local ones only, not {directory}: "
                "give a local out_dir, and take them elsewhere with on_saved"
            )
    elif save_optimizer and trainer.model is not None and shares_state(trainer.model):
        raise ValueError(
            f"{name} with use_orig_params=False cannot write the optimizer's state into one file: "
            'give use_orig_params=True, state_dict_type="sharded", or '
            "CheckpointHook(save_optimizer=False)"
        )
