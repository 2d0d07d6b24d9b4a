"""The directory of a hook's checkpoints: ``out_dir``, file names, files of other runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import fsspec

from lightning_hooks.engine.error_notes import listed
from lightning_hooks.storage import files, find_checkpoints, manifest, verification, weights
from lightning_hooks.storage.entry import Entry
from lightning_hooks.storage.file_names import is_inside
from lightning_hooks.utils.arguments import LARGEST, check_path, shown
from lightning_hooks.utils.secrets import without_user

__all__ = [
    "checked_out_dir",
    "directory_of",
    "filename_template",
    "newest_of",
    "refuse_other_storage",
    "report_other_runs",
]

TEMPLATES = "epoch_{}.pth", "iter_{}.pth"
"""mmcv's file names, to look for in a directory without a manifest."""

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
        try:
            fsspec.get_filesystem_class(path.partition("://")[0])
        except (ImportError, ValueError) as error:  # fsspec names the package to install
            raise type(error)(f"out_dir={without_user(path)!r}: {error}") from error
    return path


def directory_of(out_dir: str | None, work_dir: str) -> str:
    """Return the work directory, or the subdirectory of its name in ``out_dir``.

    >>> directory_of(None, "/work/run1"), directory_of("s3://bucket", "/work/run1/")
    ('/work/run1', 's3://bucket/run1')
    """
    directory = files.absolute(out_dir or work_dir)
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
        raise TypeError(f"filename_tmpl must be a str, got {shown(template)}")
    text = re.sub(r"\{\{|\}\}", "", template)
    fields = re.findall(r"\{(.*?)\}", text)
    # "{}" is allowed once: a second "{}" would be another argument
    is_plain = all(re.fullmatch(r"0?(:0?\d{0,2}d?)?", field) for field in fields)
    is_plain = is_plain and text.count("{") == text.count("}") == len(fields)
    if not (is_plain and (len(fields) == 1 or {field[:1] for field in fields} == {"0"})):
        raise ValueError(
            f"filename_tmpl must have one '{{}}' for the number, as in 'epoch_{{}}.pth', "
            f"got {shown(template)}"
        )
    name = template.format(LARGEST)
    if not is_inside(name):
        raise ValueError(
            f"filename_tmpl must be the name of a file in the work directory, got {shown(template)}"
        )
    if os.path.normpath(name).split(os.sep)[0] in (manifest.NAME, manifest.LATEST):
        raise ValueError(
            f"filename_tmpl must leave {manifest.NAME} and {manifest.LATEST} to the hook itself, "
            f"got {shown(template)}"
        )
    if weights.is_safetensors(name):
        raise ValueError(
            "filename_tmpl names checkpoints, which hold more than tensors, and safetensors has a "
            'place for tensors alone; export("weights.safetensors") writes the weights, '
            f"got {shown(template)}"
        )
    if max(len(part.encode(errors="replace")) for part in name.split("/")) > LONGEST_NAME:
        raise ValueError(f"filename_tmpl must make shorter names, got {shown(template)}")
    return template


def refuse_other_storage(file_client_args: Any) -> None:
    """Refuse mmcv's storages other than the disk.

    Raises:
        TypeError: for another type than a dict or None.
        ValueError: for another backend; the message names the alternative.
    """
    args = file_client_args
    if not (args is None or isinstance(args, Mapping)):
        raise TypeError(f"file_client_args must be a dict or None, got {shown(args)}")
    if args and (args.get("backend", "disk") != "disk" or args.get("prefix")):
        raise ValueError(
            f"file_client_args={shown(args)}: only the backend 'disk' is supported; for a "
            'remote storage give a path of fsspec\'s, out_dir="s3://bucket/path"'
        )


def newest_of(places: Iterable[tuple[str, str]], *, for_fit: bool = False) -> str | None:
    """Return the newest intact file of several directories: the file with most iterations.

    A tie is the first directory's. Without a file, return None.

    Args:
        places: Templates of file names, each with a directory to search.
        for_fit: Whether to prefer files with the optimizer's state.
    """
    templates: dict[str, list[str]] = {}
    for template, directory in places:
        templates.setdefault(directory, []).extend(filter(None, [template, *TEMPLATES]))
    iterations: dict[str, int] = {}
    for directory, names in templates.items():
        newest = find_checkpoints.newest_entry(directory, resumable=for_fit)
        if for_fit and newest is None:  # loading the file then raises with the reason
            newest = find_checkpoints.newest_entry(directory)
        if newest is not None:
            iterations[files.join(directory, newest.name)] = newest.iter
            continue
        unlisted = verification.newest_unlisted(directory, names, for_fit=for_fit)
        if unlisted is not None:
            iterations[unlisted] = -1
    return max(iterations, key=lambda path: iterations[path], default=None)


def report_other_runs(entries: Sequence[Entry], directory: str, run: str, template: str) -> str:
    """Describe other runs' files in a directory, with advice; empty without any.

    Args:
        entries: The files in the manifest.
        directory: The directory, local or remote.
        run: The run that begins.
        template: The file names of the run, to report unlisted files of equal names; empty for
            listed files only.
    """
    others = [entry for entry in entries if entry.run != run]
    names_of: dict[str, list[str]] = {}
    for owner, name in dict.fromkeys((f"run {entry.run}", entry.name) for entry in others):
        if files.exists(files.join(directory, name)):
            names_of.setdefault(owner, []).append(name)
    if template:
        known = {entry.name for entry in entries}
        numbers = find_checkpoints.numbered(directory, template)
        names = [name for name, _ in sorted(numbers, key=lambda x: x[1]) if name not in known]
        if names:
            names_of["a run without a list"] = names
    if not names_of:
        return ""
    directory = without_user(directory)
    of_each = "; ".join(f"{listed(names, 3)} of {owner}" for owner, names in names_of.items())
    path = files.join(directory, next(reversed(names_of.values()))[-1])
    return (
        f"{directory} holds checkpoints of another run: {of_each}. This run deletes none of them, "
        "but overwrites those whose names it uses. To go on with a run write "
        f'trainer.fit(..., ckpt_path="last"), or ckpt_path="{path}"; to keep all files give this '
        "run another directory: CheckpointHook(out_dir=...), HookAdapter(work_dir=...) or "
        "Trainer(default_root_dir=...)"
    )
