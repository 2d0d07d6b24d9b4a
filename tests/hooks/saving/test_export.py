"""``export()`` writes the validated weights of a checkpoint, without the rest of the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    ClosureHook,
    EMAHook,
    HookAdapter,
    TrainStepModule,
)
from support.probes import equal
from support.training import NoValidation, fit, make_loader, make_trainer

VAL = make_loader(2, seed=1)


class Worsens(Callback):
    """Spoils the weights in the last epoch."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.current_epoch == 2:
            with torch.no_grad():
                pl_module.net.weight.add_(10)


def load(path: Any) -> Any:
    return torch.load(path, weights_only=True)


def exported(hook: Any, folder: Path, **kwargs: Any) -> Any:
    hook.export(str(folder / "weights.pth"), **kwargs)
    return load(folder / "weights.pth")


@pytest.mark.parametrize(
    ("host", "averages", "background"),
    [(False, False, True), (False, True, False), (True, True, True)],
)
def test_export_writes_the_state_dict_of_the_hooks_file(
    tmp_path: Path, host: bool, averages: bool, background: bool
) -> None:
    last = CheckpointHook(interval=1, background=background)
    best = BestCheckpointHook("val_loss", background=background)
    hooks = [EMAHook(momentum=0.3, warm_up=0, after_fit="raw")] if averages else []
    trainer = fit(
        tmp_path, *hooks, last, best, callbacks=[Worsens()], host=host, val=VAL, max_epochs=3
    )
    raw = trainer.lightning_module.state_dict()
    assert Path(best.best_model_path).name != "best_val_loss_epoch_3.pth"
    assert equal(exported(best, tmp_path), load(best.best_model_path)["state_dict"])
    found = exported(last, tmp_path)
    assert equal(found, load(tmp_path / "epoch_3.pth")["state_dict"])
    assert equal(found, raw) is not averages
    part = exported(last, tmp_path, model=lambda module: module.net)
    assert equal(part, {key.removeprefix("net."): value for key, value in found.items()})
    now = exported(best, tmp_path, model=trainer.lightning_module)
    assert equal(now, raw)


def test_before_there_is_a_file_it_is_the_modules(tmp_path: Path) -> None:
    best, found = BestCheckpointHook("val_loss", interval=9), []
    last = CheckpointHook(interval=1)

    def export(runner: Any) -> None:
        found.append(equal(exported(last, tmp_path), runner.module.state_dict()))

    with pytest.warns(UserWarning, match="compared none"):
        trainer = fit(
            *(tmp_path, ClosureHook("after_train_iter", export), best, last),
            val=VAL,
            max_epochs=2,
        )
    assert found == [True] * 4 + [False] * 4  # the second epoch exports the first epoch's file
    assert equal(exported(best, tmp_path), trainer.lightning_module.state_dict())


def test_the_callback_of_a_background_write_exports_that_file(tmp_path: Path) -> None:
    found: list[bool] = []

    def on_saved(path: str) -> None:
        found.append(equal(exported(hook, tmp_path), load(path)["state_dict"]))

    hook = CheckpointHook(interval=1, background=True, on_saved=on_saved)
    fit(tmp_path, hook, module=NoValidation)
    assert found == [True]


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_a_train_step_modules_part_has_its_own_keys(tmp_path: Path) -> None:
    class Model(torch.nn.Linear):
        def train_step(self, data: Any, optimizer: Any) -> Any:
            loss = self(data[0]).square().mean()
            return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data[0])}

    model, hook = Model(4, 2), CheckpointHook(interval=1)
    module = TrainStepModule(model, torch.optim.SGD(model.parameters(), lr=0.1))
    make_trainer(tmp_path, HookAdapter([hook])).fit(module, make_loader(2))
    assert equal(exported(hook, tmp_path), model.state_dict())
    with pytest.raises(ValueError, match="a Linear that is no part of TrainStepModule"):
        hook.export(str(tmp_path / "x.pth"), model=lambda module: torch.nn.Linear(4, 2))


def test_export_of_a_missing_or_damaged_file_is_an_error(tmp_path: Path) -> None:
    hook = CheckpointHook(interval=1, create_symlink=False)
    fit(tmp_path, hook, module=NoValidation)
    file = tmp_path / "epoch_1.pth"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(RuntimeError, match=r"epoch_1.pth"):
        hook.export(str(tmp_path / "x.pth"))
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"epoch_1.pth"):
        hook.export(str(tmp_path / "x.pth"))
    assert not (tmp_path / "x.pth").exists()


class Size:
    """A hyperparameter of the project's own class."""


def test_a_file_with_objects_of_other_classes_is_not_executed(tmp_path: Path) -> None:
    class Module(NoValidation):
        def on_save_checkpoint(self, checkpoint: Any) -> None:
            checkpoint["size"] = Size()

    hook = CheckpointHook(interval=1)
    fit(tmp_path, hook, module=Module)
    with pytest.raises(ValueError, match=r"weights_only=False\)\['state_dict'\]"):
        hook.export(str(tmp_path / "x.pth"))


class Zipped(TorchCheckpointIO):
    """A checkpoint IO with a custom file layout."""

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        torch.save({"zipped": checkpoint}, path)

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> Any:
        return torch.load(path, weights_only=True)["zipped"]


@pytest.mark.parametrize("wrap", [lambda io: io, AsyncCheckpointIO])
def test_a_checkpoint_io_of_the_users_reads_its_files(tmp_path: Path, wrap: Any) -> None:
    hook = CheckpointHook(interval=1)
    trainer = fit(
        tmp_path,
        EMAHook(momentum=0.3, warm_up=0, after_fit="raw"),
        hook,
        module=NoValidation,
        plugins=[wrap(Zipped())],
    )
    found = exported(hook, tmp_path)
    assert equal(found, load(tmp_path / "epoch_1.pth")["zipped"]["state_dict"])
    assert not equal(found, trainer.lightning_module.state_dict())
