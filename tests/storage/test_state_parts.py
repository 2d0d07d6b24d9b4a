"""State dicts in the parts of a checkpoint directory, where the file's words are wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lightning_hooks.storage.layout import DamagedCheckpointError
from lightning_hooks.storage.state_parts import from_parts, in_parts


def test_a_place_that_no_state_has_is_damage() -> None:
    own: dict[str, Any] = {"averages": [{"state_dict": {"w": torch.ones(2)}}]}
    checkpoint: dict[str, Any] = {"optimizer_states": [{}]}
    in_parts(checkpoint, own)
    assert own["averages"][0]["state_dict"]["w"].is_meta
    checkpoint["optimizer_states"].append({})
    with pytest.raises(DamagedCheckpointError, match="'parts' must be the last place of 3, got 1"):
        from_parts(checkpoint, own, lambda: ("", {}))
