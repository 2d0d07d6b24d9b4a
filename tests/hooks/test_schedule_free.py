"""``ScheduleFreeHook``: files and module have the validated weights, and training goes on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_hooks import CheckpointHook, EMAHook, Hook, ScheduleFreeHook
from support.probes import equal
from support.schedule_free import FreeModule, ScheduleFreeSGD, by_hand
from support.training import TinyModule, fit


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("every", [4, 2])
def test_validations_see_the_weights_of_a_plain_loop(
    tmp_path: Path, host: bool, every: int
) -> None:
    module = FreeModule()
    options = {"val": 1, "max_epochs": 3, "val_check_interval": every, "host": host}
    fit(tmp_path, ScheduleFreeHook(), module=module, **options)
    assert same(module.validated, by_hand(ScheduleFreeSGD, 3, every))
    assert torch.equal(module.net.weight, module.validated[-1])


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
@pytest.mark.parametrize("background", [False, True])
def test_files_have_what_was_validated_and_resume_bit_equal(
    tmp_path: Path, background: bool
) -> None:
    files = ModelCheckpoint(tmp_path / "lightning", filename="{step}", save_top_k=-1)
    hooks = [ScheduleFreeHook(), CheckpointHook(interval=1, background=background)]
    whole = FreeModule()
    fit(tmp_path, *hooks, module=whole, val=1, max_epochs=3, callbacks=[files])
    paths = [tmp_path / "epoch_1.pth", tmp_path / "lightning" / "step=4.ckpt"]
    for path in paths:
        saved = torch.load(path, weights_only=True)["state_dict"]["net.weight"]
        torch.testing.assert_close(saved, whole.validated[0])
    resumed = FreeModule()
    again = [ScheduleFreeHook(), CheckpointHook(interval=1)]
    more = [ModelCheckpoint(tmp_path / "more", filename="{step}", save_top_k=-1)]
    fit(
        *(tmp_path / "on", *again),
        **{"module": resumed, "val": 1, "max_epochs": 3, "callbacks": more},
        ckpt_path=paths[1],
    )
    assert same(resumed.validated[-2:], whole.validated[-2:])
    assert equal(resumed.state_dict(), whole.state_dict())


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_without_a_validation_a_file_is_of_evaluation_too(tmp_path: Path) -> None:
    class Evaluates(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            seen.append(runner.module.net.weight.detach().clone())

    seen: list[torch.Tensor] = []
    hooks = [Evaluates(), ScheduleFreeHook(), CheckpointHook(interval=2, by_epoch=False)]
    fit(tmp_path, *hooks, module=FreeModule(), batches=4, max_epochs=2, limit_val_batches=0)
    wanted = by_hand(ScheduleFreeSGD, 2, 2)
    torch.testing.assert_close(seen, wanted[1::2])
    saved = torch.load(tmp_path / "iter_2.pth", weights_only=True)["state_dict"]["net.weight"]
    assert torch.equal(saved, wanted[0])


def test_after_an_error_the_module_and_the_file_can_be_evaluated(tmp_path: Path) -> None:
    class Fails(FreeModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.trainer.global_step == 6:
                raise RuntimeError("stop")
            return super().training_step(batch, batch_idx)

    module, files = Fails(), CheckpointHook(interval=9, on_exception=True)
    with pytest.raises(RuntimeError, match="stop"):
        fit(tmp_path, ScheduleFreeHook(), files, module=module, val=1, max_epochs=3)
    saved = torch.load(next(tmp_path.glob("*iter_6*")), weights_only=True)
    assert torch.equal(saved["state_dict"]["net.weight"], module.net.weight)
    assert not saved["optimizer_states"][0]["param_groups"][0]["train_mode"]
    torch.testing.assert_close(module.net.weight.detach(), by_hand(ScheduleFreeSGD, 2, 6)[0])


def test_an_optimizer_that_nobody_switches_is_answered_with_the_hook(
    tmp_path: Path, caplog: Any
) -> None:
    with pytest.raises(RuntimeError, match="train mode"):
        fit(tmp_path, CheckpointHook(), module=FreeModule(), val=1)
    assert "ScheduleFreeSGD wants train() and eval() to be called: add Sched" in caplog.text


def test_an_optimizer_without_the_methods_is_a_line(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        fit(tmp_path, ScheduleFreeHook(), module=TinyModule, val=1)
    assert "ScheduleFreeHook does nothing: no optimizer has" in caplog.text


def test_an_average_beside_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="so leave out EMAHook"):
        fit(tmp_path, EMAHook(), ScheduleFreeHook(), module=FreeModule(), val=1)
