"""ckpt_path="last" and "best" and the paths of an adapter for the files of hosted hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_hooks import BestCheckpointHook, CheckpointHook, EMAHook, EvalHook, HookAdapter
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:Lightning's default ModelCheckpoint runs beside"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*is called with Trainer configured with multiple"),
]
both = pytest.mark.parametrize("default", [False, True], ids=["alone", "beside the default"])


class Falls(TinyModule):
    """The score is best in the second of three epochs."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_acc", -abs(self.current_epoch - 1.0))


def hosted() -> HookAdapter:
    return HookAdapter([CheckpointHook(interval=1), BestCheckpointHook("val_acc")])


@both
def test_both_words_after_a_fit(tmp_path: Path, default: bool) -> None:
    options = {"max_epochs": 3, "enable_checkpointing": default, "num_sanity_val_steps": 0}
    trainer = make_trainer(tmp_path, hosted(), **options)
    trainer.fit(Falls(), make_loader(), make_loader(1))
    for word, name in (("last", "epoch_3.pth"), ("best", "best_val_acc_epoch_2.pth")):
        trainer.validate(Falls(), make_loader(1), ckpt_path=word, verbose=False)
        assert trainer.ckpt_path == str(tmp_path / name)


def test_the_adapters_paths_with_new_objects(tmp_path: Path, caplog: Any) -> None:
    options = {"max_epochs": 3, "num_sanity_val_steps": 0}
    hooks = HookAdapter(hosted().hooks, work_dir=tmp_path)
    make_trainer(tmp_path, hooks, **options).fit(Falls(), make_loader(), make_loader(1))
    new = HookAdapter(hosted().hooks, work_dir=tmp_path)
    assert new.last_checkpoint == str(tmp_path / "epoch_3.pth")
    assert new.best_checkpoint == str(tmp_path / "best_val_acc_epoch_2.pth")
    again = make_trainer(tmp_path, new, **options)
    with pytest.warns(UserWarning, match="there is no last checkpoint available"):
        again.fit(Falls(), make_loader(), make_loader(1), ckpt_path="last")
    (message,) = [one for one in caplog.messages if "another run" in one]
    path = tmp_path / "epoch_3.pth"
    assert f'trainer.fit(..., ckpt_path="{path}")' in message


def test_without_a_file_the_run_begins_anew(tmp_path: Path) -> None:
    module = TinyModule()
    trainer = make_trainer(tmp_path, HookAdapter([EMAHook(), CheckpointHook(interval=1)]))
    with pytest.warns(UserWarning, match="there is no last checkpoint available"):
        trainer.fit(module, make_loader(), ckpt_path="last")
    assert len(module.losses) == 4


def test_the_users_own_model_checkpoint_stays_before_a_hosted_hook(tmp_path: Path) -> None:
    own = ModelCheckpoint(tmp_path / "own", monitor="val_acc", mode="max")
    options = {"max_epochs": 3, "enable_checkpointing": True, "num_sanity_val_steps": 0}
    trainer = make_trainer(tmp_path, own, hosted(), **options)
    trainer.fit(Falls(), make_loader(), make_loader(1))
    trainer.validate(Falls(), make_loader(1), ckpt_path="best", verbose=False)
    assert trainer.ckpt_path == own.best_model_path


@pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
def test_the_advice_beside_an_eval_hook_alone_is_a_path(
    tmp_path: Path, host: bool, caplog: Any
) -> None:
    def trainer(epochs: int) -> Any:
        hook = EvalHook(None, save_best="val_acc")
        options = {"max_epochs": epochs, "num_sanity_val_steps": 0}
        return make_trainer(tmp_path, HookAdapter(hook) if host else hook, **options)

    trainer(3).fit(Falls(), make_loader(), make_loader(1))
    trainer(1).fit(Falls(), make_loader(), make_loader(1))
    (message,) = [one for one in caplog.messages if "another run" in one]
    path = tmp_path / "best_val_acc_epoch_2.pth"
    assert f'trainer.fit(..., ckpt_path="{path}")' in message
    assert '"last"' not in message
    module = Falls()
    trainer(3).fit(module, make_loader(), make_loader(1), ckpt_path=path)
    assert len(module.losses) == 4


@pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
def test_hooks_of_configure_callbacks_need_the_path_that_the_report_names(
    tmp_path: Path, host: bool, caplog: Any
) -> None:
    class Brings(TinyModule):
        def configure_callbacks(self) -> Any:
            hook = CheckpointHook(interval=1)
            return HookAdapter(hook) if host else hook

    make_trainer(tmp_path).fit(Brings(), make_loader())
    with pytest.warns(UserWarning, match="there is no last checkpoint available"):
        make_trainer(tmp_path, max_epochs=2).fit(Brings(), make_loader(), ckpt_path="last")
    (message,) = [one for one in caplog.messages if "another run" in one]
    path = tmp_path / "epoch_1.pth"
    assert f'ckpt_path="{path}"' in message
    module = Brings()
    make_trainer(tmp_path, max_epochs=2).fit(module, make_loader(), ckpt_path=path)
    assert len(module.losses) == 4
