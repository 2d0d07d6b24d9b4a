"""Tensors stored concatenated in a file become separate tensors again."""

from __future__ import annotations

import torch

from lightning_hooks.utils.concatenated import concatenated, separated


def test_a_tensor_read_from_a_file_can_be_changed_in_place() -> None:
    values = separated(concatenated({"loss": torch.zeros(()), "acc": torch.ones(())}))
    values["loss"] += torch.ones(1, requires_grad=True)
    assert values["loss"].item() == 1
    assert values["acc"].item() == 1
    assert values["acc"].untyped_storage().nbytes() == 4
