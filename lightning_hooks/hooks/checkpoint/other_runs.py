"""Find the checkpoints of other runs in the directory of a run that begins."""

from __future__ import annotations

from lightning_hooks.storage import files, manifest
from lightning_hooks.storage.earlier_files import numbered

__all__ = ["report"]


def report(directory: str, run: str, template: str | None = None, *, by_word: bool = True) -> str:
    """Describe the files of other runs in a directory, and what to write; empty without any.

    Args:
        directory: The directory, local or remote.
        run: The run that begins.
        template: The names of its files: those of that form that no list names are reported too.
        by_word: Whether ``ckpt_path="last"`` finds the files.
    """
    listed = manifest.read(directory)
    others = [entry for entry in listed if entry.run != run]
    found: dict[str, list[str]] = {}
    for owner, name in dict.fromkeys((f"run {entry.run}", entry.name) for entry in others):
        if files.exists(files.join(directory, name)):
            found.setdefault(owner, []).append(name)
    if template is not None:
        known = {entry.name for entry in listed}
        numbers = {n: name for name, n in numbered(directory, template) if name not in known}
        if numbers:
            found["a run without a list"] = [numbers[number] for number in sorted(numbers)]
    if not found:
        return ""
    of_each = "; ".join(f"{_shortened(names)} of {owner}" for owner, names in found.items())
    path = files.join(directory, next(reversed(found.values()))[-1])
    way = f'"last"), or ckpt_path="{path}"' if by_word else f'"{path}")'
    return (
        f"{directory} holds checkpoints of another run: {of_each}. This run deletes none of them, "
        "but overwrites those whose names it uses. To go on with a run write "
        f"trainer.fit(..., ckpt_path={way}; to keep all files give this run another directory: "
        "CheckpointHook(out_dir=...), HookAdapter(work_dir=...) or Trainer(default_root_dir=...)"
    )


def _shortened(names: list[str]) -> str:
    """Join names; of many, the first and the last.

    >>> _shortened(["a", "b"]), _shortened(["a", "b", "c", "d"])
    ('a, b', 'a ... d (4 files)')
    """
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]} ... {names[-1]} ({len(names)} files)"
