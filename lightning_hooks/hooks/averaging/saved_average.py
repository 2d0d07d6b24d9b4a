"""``SavedAverage``: an average in a checkpoint, with steps, rule, arguments and tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.engine.hook_states import Identity, pair
from lightning_hooks.storage import layout
from lightning_hooks.utils import dtensors

__all__ = ["SavedAverage", "find_averages", "read_averages", "write_averages"]


@dataclasses.dataclass
class SavedAverage:
    """The state of an average, complete enough to continue.

    Args:
        of: The class (the rule) and the arguments of the hook; None if any hook may continue.
        tensors: The values by the keys of the state dict; empty before the average is made.
        steps: Optimizer steps since averaging began; None if only ``updates`` is known.
        updates: Updates since averaging began.
        is_validated: Whether the run validated with this average.
        exact: The values of higher precision than in ``tensors``, by the same keys.
        raw: The raw weights of a validated average; empty where the module has them in place.
    """

    of: Identity | None = None
    tensors: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: int | None = 0
    updates: int = 0
    is_validated: bool = False
    exact: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    raw: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def entry(self, tensors: Mapping[str, Any] | None, exact: Mapping[str, Any]) -> dict[str, Any]:
        """Return the average's entry in a file.

        Args:
            tensors: The gathered values; None for the checkpoint's ``state_dict``.
            exact: The gathered values of higher precision.
        """
        assert self.of is not None
        name, arguments = self.of
        counts = {"steps": self.steps, "updates": self.updates}
        values = {"state_dict": tensors, **({"exact": exact} if exact else {})}
        return {"class": name, "arguments": arguments, **counts, **values}


def write_averages(checkpoint: dict[str, Any], averages: Iterable[SavedAverage]) -> None:
    """Put averages into a checkpoint, the validated average as ``state_dict``.

    Args:
        checkpoint: Lightning's dict, changed in place.
        averages: The averages of the Trainer.
    """
    state = checkpoint.get("state_dict", {})
    is_spread = dtensors.any_sharded(state.values())  # a checkpoint directory

    def in_file(tensors: Mapping[str, Any], spread: bool = False) -> dict[str, Any]:
        if spread:
            tensors = {dtensors.uncompiled_key(key): value for key, value in tensors.items()}
        else:
            tensors = dtensors.gathered(tensors)
        return {key: value for key, value in tensors.items() if key in state}

    entries = []
    for average in averages:
        if average.is_validated and average.tensors:
            checkpoint["state_dict"] = in_file(average.tensors, is_spread)
            checkpoint[layout.RAW] = in_file(average.raw or state)
            checkpoint[layout.STATE] = {"n_averaged": torch.tensor(average.updates)}
            tensors = None
        else:
            tensors = in_file(average.tensors)
        entries.append(average.entry(tensors, in_file(average.exact)))
    checkpoint.setdefault(layout.ENTRY, {})["averages"] = entries


def read_averages(checkpoint: Mapping[str, Any], module: torch.nn.Module) -> list[SavedAverage]:
    """Return the averages in a checkpoint, ours or by Lightning's ``WeightAveraging``.

    Args:
        checkpoint: Lightning's dict.
        module: The module to load into.
    """
    entries = layout.entry_of(checkpoint).get("averages")
    if entries is not None:
        return [_of_entry(entry, checkpoint, module) for entry in entries]
    if not layout.has_average(checkpoint):
        return []
    tensors, updates = _validated(checkpoint, module), checkpoint[layout.STATE].get("n_averaged", 0)
    return [SavedAverage(None, tensors, None, int(updates), is_validated=True)]


def find_averages(
    checkpoint: dict[str, Any],
    module: torch.nn.Module,
    hooks: Sequence[Any],
    path: str = "the checkpoint",
) -> list[SavedAverage | None]:
    """Return the saved average of each hook (or None), and remove it from the checkpoint's entry.

    Args:
        checkpoint: Lightning's dict.
        module: The module to load into.
        hooks: The averages of a Trainer, in the order given.
        path: The file, for the error.

    Raises:
        DamagedCheckpointError: for a weight that is no tensor.
    """
    present = [Identity.of(hook) for hook in hooks]
    saved = read_averages(checkpoint, module)
    own = module.state_dict()
    for one in saved:
        name = "state_dict" if one.is_validated else layout.ENTRY
        layout.check_weights(one.tensors, own, name, path)
        layout.check_weights(one.exact, own, layout.ENTRY, path)
    layout.check_weights(checkpoint.get(layout.RAW, {}), own, layout.RAW, path)
    found = pair([one.of or present[0] for one in saved], present) if present else {}
    entries = layout.entry_of(checkpoint).get("averages")
    if entries:
        entries[:] = [one for i, one in enumerate(entries) if i not in found.values()]
    return [saved[found[i]] if i in found else None for i in range(len(present))]


def _validated(checkpoint: Mapping[str, Any], module: torch.nn.Module) -> dict[str, Any]:
    """Return the average in ``state_dict``; a sharding strategy has loaded it into the module."""
    if "state_dict" in checkpoint:
        return dict(checkpoint["state_dict"])
    return {key: value.clone() for key, value in module.state_dict().items()}


def _of_entry(
    entry: Mapping[str, Any], checkpoint: Mapping[str, Any], module: torch.nn.Module
) -> SavedAverage:
    tensors, is_validated = entry["state_dict"], entry["state_dict"] is None
    if is_validated:
        tensors = _validated(checkpoint, module)
    of = Identity(entry["class"], entry["arguments"])
    counts = entry["steps"], entry["updates"]
    return SavedAverage(of, tensors, *counts, is_validated, entry.get("exact", {}))
