"""A checkpoint directory that is damaged, or for loading weights only, is refused with advice."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from lightning_hooks import CheckpointHook, newest_valid
from lightning_hooks.storage import manifest
from lightning_hooks.storage.layout import DamagedCheckpointError
from lightning_hooks.storage.verification import WeightsOnlyError
from support.training import NoValidation, fit


class Module(NoValidation):
    """A module sharded by FSDP2 over a single rank."""

    def configure_model(self) -> None:
        mesh: Any = self.device_mesh
        if not hasattr(self.net, "reshard"):
            fully_shard(self.net, mesh=mesh["data_parallel"])


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    yield
    torch.distributed.destroy_process_group()


def train(folder: Path, epochs: int, *hooks: Any, **options: Any) -> Any:
    strategy = ModelParallelStrategy(1, 1, process_group_backend="gloo")
    return fit(folder, *hooks, module=Module, strategy=strategy, max_epochs=epochs, **options)


def damage(part: Path) -> bytes:
    """Change a bit of a file; return the contents before."""
    contents = part.read_bytes()
    middle = len(contents) // 2
    part.write_bytes(contents[:middle] + bytes([contents[middle] ^ 1]) + contents[middle + 1 :])
    return contents


@pytest.mark.filterwarnings("ignore:Detected an existing checkpoint")  # the damaged checkpoint
def test_last_passes_over_a_directory_with_a_damaged_part(tmp_path: Path) -> None:
    first, second = (tmp_path / f"epoch_{n}.pth" for n in (1, 2))
    train(tmp_path, 2, CheckpointHook(interval=1), CheckpointHook(interval=2))
    assert len({e.crc32 for e in manifest.read(str(tmp_path)) if e.name == "epoch_2.pth"}) == 1
    for name in (".metadata", "meta.pt", "__0_0.distcp"):
        assert newest_valid(tmp_path) == str(second)
        contents = damage(second / name)
        with pytest.warns(UserWarning, match=r"epoch_2\.pth is damaged.*epoch_1\.pth is taken"):
            assert newest_valid(tmp_path) == str(first)
        (second / name).write_bytes(contents)
    (second / name).unlink()
    with pytest.warns(UserWarning, match="epoch_1.pth is taken instead"):
        trainer = train(tmp_path, 2, CheckpointHook(interval=1), ckpt_path="last")
    assert trainer.fit_loop.epoch_progress.current.completed == 2
    damage(second / "meta.pt")
    with pytest.raises(DamagedCheckpointError, match=r"epoch_2\.pth is damaged"):
        train(tmp_path, 4, CheckpointHook(interval=1), ckpt_path=str(second))


def test_a_directory_of_weights_only_is_refused_with_a_command_that_makes_a_file(
    tmp_path: Path,
) -> None:
    hook = CheckpointHook(interval=1, save_optimizer=False)
    module = train(tmp_path, 1, hook).lightning_module
    with pytest.raises(WeightsOnlyError) as raised:
        train(tmp_path, 2, hook, ckpt_path=str(tmp_path / "epoch_1.pth"))
    (command,) = re.findall(r"\(python (.* FILE):", str(raised.value))
    file = tmp_path / "whole.pt"
    subprocess.run([sys.executable, *shlex.split(command)[:-1], str(file)], check=True)
    weights = torch.load(file, weights_only=True)["state_dict"]
    for name, value in module.state_dict().items():
        assert torch.equal(weights[name], value.full_tensor())
