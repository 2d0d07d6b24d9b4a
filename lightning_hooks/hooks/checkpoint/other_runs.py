"""Find the checkpoints of other runs in the directory of a run that begins."""

from __future__ import annotations

import glob
import os
import re
import string

from lightning_hooks.storage import files, manifest

__all__ = ["report", "unlisted"]


def report(directory: str, run: str, template: str | None = None) -> str:
    """Describe the files of other runs in a directory, and what to write; empty without any.

    Args:
        directory: The directory, local or remote.
        run: The run that begins.
        template: The names of its files: those of that form that no list names are reported too.
    """
    listed = manifest.read(directory)
    others = [entry for entry in listed if entry.run != run]
    found: dict[str, list[str]] = {}
    for entry in others:
        if files.exists(files.join(directory, entry.name)):
            found.setdefault(f"run {entry.run}", []).append(entry.name)
    if template is not None:
        names = unlisted(directory, template) - {entry.name for entry in listed}
        if names:
            found["a run without a list"] = sorted(names, key=lambda name: (len(name), name))
    if not found:
        return ""
    of_each = "; ".join(f"{_shortened(names)} of {owner}" for owner, names in found.items())
    return (
        f"{directory} holds checkpoints of another run: {of_each}. This run deletes none of them, "
        "but overwrites those whose names it uses. To go on with a run write "
        'trainer.fit(..., ckpt_path="last"), or its file\'s path; to keep all files give this run '
        "another directory: CheckpointHook(out_dir=...), HookAdapter(work_dir=...) or "
        "Trainer(default_root_dir=...)"
    )


def unlisted(directory: str, template: str) -> set[str]:
    """Return the names of a template's form that are in a local directory; none in a remote one.

    >>> unlisted("memory://runs", "epoch_{}.pth")
    set()
    """
    if not files.is_local(directory):
        return set()
    folder = directory.removeprefix("file://")
    parts = [(text, field is not None) for text, field, *_ in string.Formatter().parse(template)]
    form = "".join(glob.escape(text) + "*" * number for text, number in parts)
    exact = "".join(re.escape(text) + r"\d+" * number for text, number in parts)
    names = glob.glob(form, root_dir=folder)
    return {name.replace(os.sep, "/") for name in names if re.fullmatch(exact, name)}


def _shortened(names: list[str]) -> str:
    """Join names; of many, the first and the last.

    >>> _shortened(["a", "b"]), _shortened(["a", "b", "c", "d"])
    ('a, b', 'a ... d (4 files)')
    """
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]} ... {names[-1]} ({len(names)} files)"
