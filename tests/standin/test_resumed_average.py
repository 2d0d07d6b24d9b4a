"""mmcv's EMAHook in a Trainer: its buffers on the model survive a resume."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_hooks import HookAdapter
from support.training import TinyModule, make_loader, make_trainer


@pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")
@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint")
@pytest.mark.parametrize("host", [False, True], ids=["bare", "adapter"])
@pytest.mark.parametrize("validates", [False, True])
def test_a_resumed_run_equals_the_whole_run(tmp_path: Path, host: bool, validates: bool) -> None:
    from mmcv.runner import EMAHook

    def train(*callbacks: object, ckpt_path: Path | None = None) -> dict[str, torch.Tensor]:
        hook = EMAHook(momentum=0.5, warm_up=1)
        own = HookAdapter([hook]) if host else hook
        trainer = make_trainer(
            tmp_path, own, *callbacks, max_epochs=2, enable_checkpointing=bool(callbacks)
        )
        module = TinyModule()
        trainer.fit(
            module, make_loader(4), make_loader(1) if validates else None, ckpt_path=ckpt_path
        )
        return module.state_dict()

    saver = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=1, save_top_k=-1)
    epochs = ModelCheckpoint(dirpath=tmp_path / "epochs", save_top_k=-1)
    whole = train(saver, epochs)
    assert not torch.equal(whole["net.weight"], whole["ema_net_weight"])
    paths = [path for path in tmp_path.rglob("*.ckpt") if "step=8" not in path.name]
    assert len(paths) == 8
    for path in paths:
        resumed = train(ckpt_path=path)
        assert all(torch.equal(value, resumed[name]) for name, value in whole.items()), path
