"""State dicts in the parts of a checkpoint directory with wrong metadata."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from lightning_hooks.storage.layout import DamagedCheckpointError
from lightning_hooks.storage.state_parts import from_parts, in_parts
from lightning_hooks.utils.random_state import get_rng_state


def test_a_place_that_no_state_has_is_damage() -> None:
    own: dict[str, Any] = {"averages": [{"state_dict": {"w": torch.ones(2)}}]}
    checkpoint: dict[str, Any] = {"optimizer_states": [{}]}
    in_parts(checkpoint, own, 0, 1)
    assert own["averages"][0]["state_dict"]["w"].is_meta
    checkpoint["optimizer_states"].append({})
    with pytest.raises(DamagedCheckpointError, match="'parts' must be the last place of 3, got 1"):
        from_parts(checkpoint, own, lambda: ("", {}))


@pytest.mark.parametrize("contents", [b"", b"no file", pickle.dumps({"rng": print})])
def test_a_state_of_a_rank_is_read_without_executing_it(contents: bytes) -> None:
    own: dict[str, Any] = {"rng": [get_rng_state()], "loaders": [[]], "data": [[]]}
    checkpoint: dict[str, Any] = {}
    in_parts(checkpoint, own, 1, 2)
    (parts,) = checkpoint["optimizer_states"]
    packed = parts["state"]["ranks"]
    read: dict[str, Any] = {"parts": 0, "ranks": 2}
    from_parts({"optimizer_states": [{"state": {"ranks": {**packed}}}]}, read, lambda: ("", {}))
    assert read["rng"][0] == []
    assert read["rng"][1]["python"] == get_rng_state()["python"]
    packed["1"] = torch.tensor([*contents], dtype=torch.uint8)
    with pytest.raises(DamagedCheckpointError, match="state of rank 1 in the checkpoint cannot"):
        from_parts(checkpoint, own, lambda: ("", {}))
