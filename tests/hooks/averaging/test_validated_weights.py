"""A checkpoint's state_dict holds the validated weights, so the file reproduces its score."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from lightning_hooks import (
    BestCheckpointHook,
    CheckInvalidLossHook,
    ClosureHook,
    EMAHook,
    EvalHook,
    HookAdapter,
    IterTimerHook,
    ScheduleFreeHook,
    StochasticWeightAverageHook,
)
from support.lightning_releases import ema_weight_averaging
from support.probes import Probe, equal, weights
from support.schedule_free import FreeModule
from support.training import TinyModule, TinyNormModule, fit, make_loader, make_trainer

hosted = pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
adapted = pytest.mark.parametrize("host", [True], ids=["hosted"])
pytestmark = [
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
]


def score_of(path: Any, *hooks: Any, module: Any = None) -> float:
    """Validate a file with the Trainer's own ``ckpt_path``."""
    trainer = make_trainer(Path(path).parent, *hooks)
    module = module or TinyNormModule(seed=7)
    (found,) = trainer.validate(module, make_loader(3, seed=1), ckpt_path=path, verbose=False)
    return float(found["val_loss"])


def train(folder: Path, *hooks: Any, **arguments: Any) -> Any:
    arguments = {"batches": 4, "val": make_loader(3, seed=1), "max_epochs": 3, **arguments}
    return fit(folder, *hooks, module=arguments.pop("module", TinyNormModule), **arguments)


@pytest.mark.parametrize(
    ("host", "buffers"), [(False, "ignore"), (True, "average"), (False, "copy")]
)
def test_the_best_file_gives_the_score_that_it_was_chosen_for(
    tmp_path: Path, host: bool, buffers: Any
) -> None:
    best, ema = BestCheckpointHook("val_loss"), EMAHook(momentum=0.1, buffers=buffers)
    trainer = train(tmp_path, ema, StochasticWeightAverageHook(), best, host=host)
    path = trainer.checkpoint_callback.best_model_path
    saved = torch.load(path, weights_only=True)
    score = saved["meta"]["hook_msgs"]["best_score"]
    assert not equal(saved["state_dict"], saved["current_model_state"])
    assert score_of(path) == score
    assert score_of(path, IterTimerHook()) == score
    assert score_of(path, EMAHook(momentum=0.1, buffers=buffers)) == score
    swa = StochasticWeightAverageHook()
    assert score_of(path, swa, EMAHook(momentum=0.1, buffers=buffers)) == score
    assert score_of(path, CheckInvalidLossHook(), swa) == score
    module = TinyNormModule.load_from_checkpoint(path)
    assert score_of(path, module=module) == score
    assert equal(weights(module), saved["state_dict"])


@hosted
def test_lightnings_model_checkpoint_writes_the_validated_weights_too(
    tmp_path: Path, host: bool
) -> None:
    saver = ModelCheckpoint(
        tmp_path, "{val_loss:.7f}", monitor="val_loss", save_top_k=-1, save_weights_only=True
    )
    train(tmp_path, EMAHook(momentum=0.1), host=host, callbacks=[saver], val_check_interval=2)
    files = [*tmp_path.glob("*.ckpt")]
    assert len(files) == 6
    for path in files:
        score = float(re.findall(r"val_loss=([\d.]+)\.ckpt", path.name)[0])
        assert score_of(path) == pytest.approx(score, abs=1e-6)


class Scored(TensorDataset):
    """A dataset whose score counts the evaluations."""

    count = 0

    def evaluate(self, results: Any, logger: Any = None) -> dict[str, int]:
        self.count += 1
        return {"acc": self.count}


@hosted
@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
@pytest.mark.parametrize("hook", [EMAHook(momentum=0.1), ScheduleFreeHook()])
def test_departure_an_evaluation_within_an_epoch_is_of_the_weights_in_its_file(
    tmp_path: Path, host: bool, hook: Any
) -> None:
    seen: list[torch.Tensor] = []

    def look(model: Any, loader: Any) -> list[Any]:
        seen.append(model.module.net.weight.detach().clone())
        return []

    evaluation = EvalHook(
        *(DataLoader(Scored(torch.ones(1))),),
        **{"by_epoch": False, "interval": 3, "save_best": "acc", "keep_best": 3, "test_fn": look},
    )
    kind = FreeModule if isinstance(hook, ScheduleFreeHook) else TinyModule
    options = {"module": kind, "max_epochs": 2, "accumulate_grad_batches": 2}
    with_it = fit(tmp_path, evaluation, hook, host=host, **options)
    files = [tmp_path / f"best_acc_iter_{done}.pth" for done in (3, 6)]
    saved = [torch.load(path, weights_only=True)["state_dict"]["net.weight"] for path in files]
    torch.testing.assert_close(seen[:2], saved)
    without = fit(tmp_path, copy.copy(hook), **options)
    trained = [trainer.lightning_module.net.weight for trainer in (with_it, without)]
    torch.testing.assert_close(*trained)


@adapted
def test_in_a_run_by_iteration_too(tmp_path: Path, host: bool) -> None:
    best = BestCheckpointHook("val_loss")
    kwargs: dict[str, Any] = {"by_epoch": False} if host else {}
    trainer = train(
        tmp_path,
        *(EMAHook(momentum=0.1), best),
        max_epochs=-1,
        max_steps=8,
        val_check_interval=4,
        **kwargs,
    )
    path = trainer.checkpoint_callback.best_model_path
    saved = torch.load(path, weights_only=True)
    assert score_of(path) == saved["meta"]["hook_msgs"]["best_score"]


class SaveEach(Callback):
    """Saves at the end of each epoch."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        path = self.folder / f"{self.name}_{trainer.current_epoch + 1}.ckpt"
        trainer.save_checkpoint(path, weights_only=False)


def ours() -> EMAHook:
    return EMAHook(momentum=0.1, warm_up=0, begin_iter=1, buffers="average")


def theirs() -> Callback:
    return ema_weight_averaging(decay=0.9)


def assert_same_files(one: Path, other: Path) -> None:
    a, b = (torch.load(path, weights_only=True) for path in (one, other))
    for part in ("state_dict", "current_model_state"):
        assert a[part].keys() == b[part].keys()
        for key, value in a[part].items():
            if value.is_floating_point():  # theirs averages integers
                torch.testing.assert_close(b[part][key], value)
    assert a["averaging_state"].keys() == b["averaging_state"].keys()


@pytest.mark.parametrize("beside", [[], [IterTimerHook()]], ids=["alone", "beside a hook"])
def test_lightnings_ema_goes_on_from_our_file(tmp_path: Path, beside: list[Any]) -> None:
    train(tmp_path, theirs(), SaveEach(tmp_path, "whole"), max_epochs=4)
    train(tmp_path, ours(), SaveEach(tmp_path, "ours"), max_epochs=2)
    assert_same_files(tmp_path / "whole_2.ckpt", tmp_path / "ours_2.ckpt")
    save = SaveEach(tmp_path, "then")
    path = tmp_path / "ours_2.ckpt"
    train(tmp_path, *beside, theirs(), save, max_epochs=4, ckpt_path=path)
    assert_same_files(tmp_path / "whole_4.ckpt", tmp_path / "then_4.ckpt")


@adapted
def test_our_ema_goes_on_from_lightnings_file(tmp_path: Path, host: bool) -> None:
    train(tmp_path, ours(), callbacks=[SaveEach(tmp_path, "whole")], max_epochs=4)
    train(tmp_path, theirs(), SaveEach(tmp_path, "theirs"), max_epochs=2)
    save, path = SaveEach(tmp_path, "then"), tmp_path / "theirs_2.ckpt"
    train(tmp_path, ours(), callbacks=[save], max_epochs=4, ckpt_path=path, host=host)
    assert_same_files(tmp_path / "whole_4.ckpt", tmp_path / "then_4.ckpt")


@adapted
def test_a_hook_that_resumes_or_loads_gets_the_raw_or_the_validated_weights(
    tmp_path: Path, host: bool
) -> None:
    train(tmp_path, EMAHook(momentum=0.1), callbacks=[SaveEach(tmp_path, "a")], max_epochs=1)
    path = str(tmp_path / "a_1.ckpt")
    saved = torch.load(path, weights_only=True)
    probes = []
    for act in ("resume", "load_checkpoint"):
        probe = Probe()
        hook = ClosureHook("before_run", lambda runner, act=act: getattr(runner, act)(path))
        train(tmp_path, hook, callbacks=[probe], max_epochs=2, host=host)
        probes.append(probe)
    assert equal(probes[0].train[0], saved["current_model_state"])
    assert equal(probes[1].train[0], saved["state_dict"])


@adapted
def test_after_a_validation_of_a_file_the_module_has_its_weights(
    tmp_path: Path, host: bool
) -> None:
    ema, module = EMAHook(momentum=0.1), TinyNormModule()
    save, probe = SaveEach(tmp_path, "a"), Probe()
    trainer = train(tmp_path, ema, module=module, callbacks=[save, probe], host=host)
    path = tmp_path / "a_1.ckpt"
    trainer.validate(module, make_loader(1), ckpt_path=path, verbose=False)
    saved = torch.load(path, weights_only=True)
    assert equal(probe.val[-1], saved["state_dict"])
    assert equal(weights(module), saved["state_dict"])


def test_an_evaluation_hook_scores_the_average_and_its_best_file_holds_it(tmp_path: Path) -> None:
    scores: list[float] = []

    class Evaluates(EvalHook):
        def evaluate(self, runner: Any, results: Any) -> None:
            raise AssertionError("not called")

        def _do_evaluate(self, runner: Any) -> None:
            with torch.no_grad():
                value = runner.module.net[0].weight.sum().item()
            scores.append(value)
            self._save_ckpt(runner, value)

    hook = Evaluates(make_loader(1), save_best="total", rule="greater")
    trainer = train(tmp_path, HookAdapter([(EMAHook(momentum=0.1), 49), hook]), max_epochs=2)
    path = hook.best_ckpt_path
    saved = torch.load(path, weights_only=True)
    assert saved["state_dict"]["net.0.weight"].sum().item() in scores
    assert trainer.current_epoch == 2


def test_a_hook_of_a_later_fit_leaves_the_earlier_model_its_average(tmp_path: Path) -> None:
    hook, val = EMAHook(momentum=0.1), make_loader(3, seed=1)
    first = train(tmp_path / "first", hook)
    averaged = first.lightning_module
    again = {"dataloaders": val, "verbose": False}
    (score,) = first.validate(averaged, **again)
    second = train(tmp_path / "second", hook)
    assert first.validate(averaged, **again) == [score]
    assert second.validate(averaged, **again) == [score]
    assert make_trainer(tmp_path).validate(averaged, **again) == [score]
