"""Where checkpoints go and what they are called, by mmcv's rules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import fsspec

from lightning_hooks import files

__all__ = ["checked_out_dir", "directory_of", "filename_template", "refuse_other_storage"]


def checked_out_dir(out_dir: Any) -> str | None:
    """Return an ``out_dir`` argument as a string, or None.

    Raises:
        TypeError: if it is not a path.
        ImportError: if the package for its storage is missing; the message says which.
        ValueError: if there is no such storage.
    """
    if not (out_dir is None or isinstance(out_dir, (str, os.PathLike))):
        raise TypeError(f"out_dir must be a path or None, got {out_dir!r}")
    path = None if out_dir is None else os.fspath(out_dir)
    if path is not None and not files.is_local(path):
        protocol = path.partition("://")[0]
        try:
            fsspec.get_filesystem_class(protocol)
        except ImportError as error:
            extra = ': pip install "lightning-hooks[s3]"' if protocol == "s3" else ""
            raise ImportError(f"out_dir={path!r}: {error}{extra}") from error
        except ValueError as error:
            raise ValueError(f"out_dir={path!r}: {error}") from error
    return path


def directory_of(out_dir: str | None, work_dir: str) -> str:
    """Return the work directory, or the one of its name in ``out_dir``.

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
    """Return the template of the file names, mmcv's if it is None.

    Raises:
        TypeError: if it is not a string.
        ValueError: if it does not make a name from a number, another one from another number.
    """
    if template is None:
        return "epoch_{}.pth" if by_epoch else "iter_{}.pth"
    if not isinstance(template, str):
        raise TypeError(f"filename_tmpl must be a str, got {template!r}")
    try:
        names = {template.format(1), template.format(2)}
    except (IndexError, KeyError, ValueError):
        names = set()
    if len(names) < 2:
        raise ValueError(
            f"filename_tmpl must have one '{{}}' for the number, as in 'epoch_{{}}.pth', "
            f"got {template!r}"
        )
    return template


def refuse_other_storage(file_client_args: Any) -> None:
    """Refuse mmcv's storages other than the disk.

    Raises:
        TypeError: if it is neither a dict nor None.
        ValueError: for another backend; the message says what to use.
    """
    args = file_client_args
    if not (args is None or isinstance(args, Mapping)):
        raise TypeError(f"file_client_args must be a dict or None, got {args!r}")
    if args and (args.get("backend", "disk") != "disk" or args.get("prefix")):
        raise ValueError(
            f"file_client_args={dict(args)!r}: only the backend 'disk' is known; for a remote "
            'storage give a path of fsspec\'s, out_dir="s3://bucket/path"'
        )
