"""``SavedAverage``: an average in a checkpoint, with steps, rule, arguments and tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.hook_states import Identity, pair
from lightning_hooks.storage import layout
from lightning_hooks.utils import dtensors

__all__ = ["SavedAverage", "find_averages", "write_averages"]


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
        is_estimated: Whether ``tensors`` have BatchNorm statistics estimated for this average.
    """

    of: Identity | None = None
    tensors: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: int | None = 0
    updates: int = 0
    is_validated: bool = False
    exact: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    raw: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_estimated: bool = False

    def has_names_of(self, own: Mapping[str, Any]) -> bool:
        """Whether the average, if there are values, has values of the module with a state dict."""
        known = {*own, *map(dtensors.uncompiled_key, own)}
        return not self.tensors or not known.isdisjoint(self.tensors)

    def record(self, tensors: Mapping[str, Any] | None, exact: Mapping[str, Any]) -> dict[str, Any]:
        """Return the average's record in a file.

        Args:
            tensors: The gathered values; None for the checkpoint's ``state_dict``.
            exact: The gathered values of higher precision.
        """
        assert self.of is not None
        name, arguments = self.of
        counts = {"steps": self.steps, "updates": self.updates}
        values = {"state_dict": tensors, **({"exact": exact} if exact else {})}
        estimated = {"is_estimated": True} if self.is_estimated else {}
        return {"class": name, "arguments": arguments, **counts, **estimated, **values}


def write_averages(file: CheckpointFile, averages: Iterable[SavedAverage]) -> None:
    """Put averages into a file, the validated average as ``state_dict``.

    What callbacks have added to the ``state_dict`` stays, and masks of pruning that Lightning's
    ``ModelPruning`` has applied to it are applied to the averages.

    Args:
        file: The file.
        averages: The averages of the Trainer.
    """
    checkpoint = file.contents
    state = checkpoint.get("state_dict", {})

    def in_file(tensors: Mapping[str, Any]) -> dict[str, Any]:
        if file.in_parts:
            tensors = {dtensors.uncompiled_key(key): value for key, value in tensors.items()}
        else:
            tensors = dtensors.gathered(tensors)
        tensors = {**tensors, **_pruned(tensors)}
        return {key: value for key, value in tensors.items() if key in state}

    records = file.own_part["averages"] = []
    for average in averages:
        if average.is_validated and average.tensors:
            checkpoint["state_dict"] = {**state, **in_file(average.tensors)}
            checkpoint[layout.RAW] = {**state, **in_file(average.raw or state)}
            checkpoint[layout.STATE] = {"n_averaged": torch.tensor(average.updates)}
            tensors = None
        else:
            tensors = in_file(average.tensors)
        records.append(average.record(tensors, in_file(average.exact)))


def _pruned(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pruned weights, each with its mask applied, by their names without pruning."""
    names = [key.removesuffix("_orig") for key in tensors if key.endswith("_orig")]
    return {
        name: tensors[f"{name}_orig"] * tensors[f"{name}_mask"]
        for name in names
        if f"{name}_mask" in tensors
    }


def find_averages(
    checkpoint: dict[str, Any], own: Mapping[str, Any], hooks: Sequence[Any], path: str
) -> list[SavedAverage | None]:
    """Return the saved average of each hook (or None), and remove it from the checkpoint.

    Args:
        checkpoint: Lightning's dict, of the layout of a checkpoint.
        own: The state dict of the module to load into.
        hooks: The averages of a Trainer, in the order given.
        path: The file, for the error.

    Raises:
        DamagedCheckpointError: for a weight that is no tensor.
    """
    present = [Identity.of(hook) for hook in hooks]
    records = checkpoint.get(layout.OWN_PART, {}).get("averages")
    saved = _read(records, checkpoint, own)
    for average in saved:
        name = "state_dict" if average.is_validated else layout.OWN_PART
        layout.check_weights(average.tensors, own, name, path)
        layout.check_weights(average.exact, own, layout.OWN_PART, path)
    layout.check_weights(checkpoint.get(layout.RAW, {}), own, layout.RAW, path)
    places = pair([average.of or present[0] for average in saved], present) if present else {}
    if records:
        records[:] = [record for i, record in enumerate(records) if i not in places.values()]
    return [saved[places[i]] if i in places else None for i in range(len(present))]


def _read(
    records: Sequence[Mapping[str, Any]] | None,
    checkpoint: Mapping[str, Any],
    own: Mapping[str, Any],
) -> list[SavedAverage]:
    """Return the averages in a checkpoint, ours or by Lightning's ``WeightAveraging``."""
    if records is not None:
        return [_from_record(record, checkpoint, own) for record in records]
    if not layout.has_average(checkpoint):
        return []
    tensors, updates = _validated(checkpoint, own), checkpoint[layout.STATE].get("n_averaged", 0)
    return [SavedAverage(None, tensors, None, int(updates), is_validated=True)]


def _validated(checkpoint: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the average in ``state_dict``; a sharding strategy has loaded it into the module."""
    if "state_dict" in checkpoint:
        return dict(checkpoint["state_dict"])
    return {key: value.clone() for key, value in own.items()}


def _from_record(
    record: Mapping[str, Any], checkpoint: Mapping[str, Any], own: Mapping[str, Any]
) -> SavedAverage:
    tensors, is_validated = record["state_dict"], record["state_dict"] is None
    if is_validated:
        tensors = _validated(checkpoint, own)
    of = Identity(record["class"], record["arguments"])
    return SavedAverage(
        of,
        tensors,
        record["steps"],
        record["updates"],
        is_validated,
        record.get("exact", {}),
        is_estimated=record.get("is_estimated", False),
    )
