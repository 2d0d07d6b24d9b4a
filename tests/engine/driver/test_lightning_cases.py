"""Hook calls in run modes of Lightning that mmcv does not have.

The expected lists are derived by hand: a mid-epoch validation leaves the epoch open, the last
validation of an epoch comes after ``after_train_epoch``, and every ``before`` has an ``after``.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, LearningRateFinder, ModelCheckpoint
from torch.utils.data import DataLoader, IterableDataset

from lightning_hooks import CheckpointHook, Hook, HookAdapter, IterTimerHook, TextLoggerHook
from lightning_hooks.engine.driver.driver import Driver
from support import training
from support.probes import Recorder, line
from support.training import NoValidation, TinyModule, make_loader, make_trainer


def fit(folder: Path, *hooks: Any, val: Any = 0, **options: Any) -> Any:
    kind = ManyValidations if isinstance(val, list) else TinyModule if val else NoValidation
    return training.fit(folder, *hooks, val=val, **{"module": kind, **options})


pytestmark = [
    pytest.mark.filterwarnings("ignore:`training_step` returned `None`"),
    pytest.mark.filterwarnings("ignore:predict returned None"),
    pytest.mark.filterwarnings("ignore:`max_epochs` was not set"),
]


class ManyValidations(TinyModule):
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return super().validation_step(batch, batch_idx)


class Stream(IterableDataset[Any]):
    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.batches):
            yield torch.ones(4), torch.ones(2)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"val": 1, "batches": 7, "val_check_interval": 0.3}, "([tTtT{vV}tTtT{vV}tTtT{vV}tT])"),
        ({"val": 1, "batches": 4, "val_check_interval": 0.5}, "([tTtT{vV}tTtT]{vV})"),
        ({"val": 1, "batches": 4, "val_check_interval": 3}, "([tTtTtT{vV}tT])"),
        (
            {
                "val": 1,
                "batches": 4,
                "val_check_interval": 3,
                "check_val_every_n_epoch": None,
                "max_epochs": 2,
            },
            "([tTtTtT{vV}tT][tTtT{vV}tTtT])",
        ),
        ({"val": 1, "limit_train_batches": 2, "max_epochs": 2}, "([tTtT]{vV}[tTtT]{vV})"),
        ({"val": 2, "limit_val_batches": 1}, "([tTtTtTtT]{vV})"),
        ({"max_steps": 6, "max_epochs": -1, "val": 1}, "([tTtTtTtT]{vV}[tTtT])"),
        ({"val": [1, 2]}, "([tTtTtTtT]{vVvVvV})"),
        ({"accumulate_grad_batches": 3, "max_epochs": 2, "batches": 2}, "([tTtT][tTtT])"),
        ({"limit_train_batches": 0}, ""),
        ({"max_epochs": 0}, ""),
    ],
)
@pytest.mark.filterwarnings("ignore:.*has no.*")
def test_calls(options: dict[str, Any], want: str, tmp_path: Path) -> None:
    recorder = Recorder()
    fit(tmp_path, recorder, **options)
    assert line(recorder) == want


def test_mid_epoch_validation_sees_the_running_epoch_and_training_goes_on(tmp_path: Path) -> None:
    recorder = Recorder()
    fit(tmp_path, recorder, val=2, batches=4, val_check_interval=0.5)
    assert recorder.calls[5:] == [
        ("after_train_iter", 0, 1, 1, "train"),
        ("before_val_epoch", 0, 2, 1, "val"),
        ("before_val_iter", 0, 2, 0, "val"),
        ("after_val_iter", 0, 2, 0, "val"),
        ("before_val_iter", 0, 2, 1, "val"),
        ("after_val_iter", 0, 2, 1, "val"),
        ("after_val_epoch", 0, 2, 1, "val"),
        ("before_train_iter", 0, 2, 2, "train"),
        ("after_train_iter", 0, 2, 2, "train"),
        ("before_train_iter", 0, 3, 3, "train"),
        ("after_train_iter", 0, 3, 3, "train"),
        ("after_train_epoch", 0, 4, 3, "train"),
        ("before_val_epoch", 1, 4, 3, "val"),
        ("before_val_iter", 1, 4, 0, "val"),
        ("after_val_iter", 1, 4, 0, "val"),
        ("before_val_iter", 1, 4, 1, "val"),
        ("after_val_iter", 1, 4, 1, "val"),
        ("after_val_epoch", 1, 4, 1, "val"),
        ("after_run", 1, 4, 1, "val"),
    ]


@pytest.mark.parametrize("hosted", [False, True], ids=["bare", "hosted"])
def test_batches_of_several_validation_loaders_are_counted_on(hosted: bool, tmp_path: Path) -> None:
    seen = []

    class Spy(Hook):
        def after_val_iter(self, runner: Any) -> None:
            seen.append((runner.inner_iter, self.end_of_epoch(runner)))

    hooks: list[Any] = [Spy(), TextLoggerHook()]
    hooks = [HookAdapter(hooks)] if hosted else hooks
    trainer = make_trainer(tmp_path, *hooks, max_epochs=1, num_sanity_val_steps=1)
    trainer.fit(ManyValidations(), make_loader(1), [make_loader(2), make_loader(1)])
    assert seen == [(0, False), (1, False), (2, True)]
    (log,) = tmp_path.glob("*.log.json")
    assert json.loads(log.read_text().splitlines()[-1])["iter"] == 3


def test_iter_counts_batches_not_optimizer_steps(tmp_path: Path) -> None:
    recorder = Recorder()
    trainer = fit(tmp_path, recorder, accumulate_grad_batches=2, batches=5)
    assert trainer.global_step == 3
    assert [c[2] for c in recorder.calls if c[0] == "after_train_iter"] == [0, 1, 2, 3, 4]
    assert recorder.calls[-1] == ("after_run", 1, 5, 4, "train")


def test_unsized_loader(tmp_path: Path) -> None:
    class Ends(Recorder):
        ends: list[bool]
        totals: set[Any]

        def after_train_iter(self, runner: Any) -> None:
            super().after_train_iter(runner)
            self.ends.append(self.end_of_epoch(runner))
            self.totals.add(runner.max_iters)

    hook = Ends()
    hook.ends, hook.totals = [], set()
    loader = DataLoader(Stream(3), batch_size=None)
    fit(tmp_path, hook, batches=loader, max_epochs=2, val=1)
    assert line(hook) == "([tTtTtT]{vV}[tTtTtT]{vV})"
    assert hook.ends == [False, False, True] * 2
    assert hook.totals == {None}


@pytest.mark.parametrize("limit", [3, 0.75])
def test_departure_end_of_epoch_knows_where_lightning_limits_it(
    tmp_path: Path, limit: float
) -> None:
    class Ends(Hook):
        ends: list[bool]

        def after_train_iter(self, runner: Any) -> None:
            self.ends.append(self.end_of_epoch(runner))

    hook = Ends()
    hook.ends = []
    fit(tmp_path, hook, limit_train_batches=limit, max_epochs=2)
    assert hook.ends == [False, False, True] * 2


def test_departure_end_of_epoch_knows_where_the_loader_has_no_length(tmp_path: Path) -> None:
    ends: list[bool] = []

    class Ends(Hook):
        def after_train_iter(self, runner: Any) -> None:
            ends.append(self.end_of_epoch(runner))

    fit(tmp_path, Ends(), batches=DataLoader(Stream(3), batch_size=None), max_epochs=2)
    assert ends == [False, False, True] * 2


def test_max_steps_in_mid_epoch_closes_the_epoch(tmp_path: Path) -> None:
    recorder = Recorder()
    fit(tmp_path, recorder, max_steps=6, max_epochs=5)
    assert line(recorder) == "([tTtTtTtT][tTtT])"
    assert recorder.calls[-1][:3] == ("after_run", 2, 6)


def test_stopping_in_mid_epoch_validates_and_closes_the_epoch(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            trainer.should_stop = trainer.global_step == 2

    recorder = Recorder()
    fit(tmp_path, recorder, Stop(), val=1, max_epochs=3)
    assert line(recorder) == "([tTtT]{vV})"


def test_departure_runner_should_stop_ends_training_after_the_iteration_unlike_mmcv(
    tmp_path: Path,
) -> None:
    class Stop(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.should_stop = runner.iter == 1

    recorder = Recorder()
    fit(tmp_path, Stop(), recorder, max_epochs=3)
    assert line(recorder) == "([tTtT])"


@pytest.mark.parametrize("kind", ["tensor", "dict", "none"])
def test_what_a_training_step_may_return(kind: str, tmp_path: Path) -> None:
    class Module(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return {"tensor": loss, "dict": {"loss": loss, "extra": loss * 2}, "none": None}[kind]

    class Outputs(Hook):
        def __init__(self) -> None:
            self.keys: list[list[str]] = []
            self.losses: list[float] = []

        def after_train_iter(self, runner: Any) -> None:
            self.keys.append(sorted(runner.outputs))
            self.losses += [float(v) for k, v in runner.outputs.items() if k == "loss"]

    hook, recorder, module = Outputs(), Recorder(), Module()
    fit(tmp_path, hook, recorder, module=module, accumulate_grad_batches=2)
    keys = {"tensor": ["loss"], "dict": ["extra", "loss"], "none": []}[kind]
    assert line(recorder) == "([tTtTtTtT])"
    assert hook.keys == [keys] * 4
    if kind != "none":  # whole, where Lightning's own outputs are divided by the accumulation
        assert hook.losses == module.losses


def test_module_that_skips_the_rest_of_an_epoch(tmp_path: Path) -> None:
    class Module(TinyModule):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 2 else None

    recorder = Recorder()
    fit(tmp_path, recorder, module=Module(), val=1, max_epochs=2)
    assert line(recorder) == "([tTtTt][tTtTt])"
    assert [c[2] for c in recorder.calls if c[0] == "after_train_iter"] == [0, 1, 2, 3]


@pytest.mark.parametrize("limit", [{}, {"max_steps": 9}], ids=["epochs", "steps"])
def test_a_run_goes_on_after_an_epoch_that_the_module_has_cut_short(
    limit: dict[str, int], tmp_path: Path
) -> None:
    begun: list[tuple[int, int]] = []

    class Module(NoValidation):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            begun.append((self.current_epoch, batch_idx))
            return -1 if batch_idx == 2 else None

    class Iterations(Hook):
        def before_train_iter(self, runner: Any) -> None:
            vars(self).setdefault("seen", []).append((runner.epoch, runner.iter))

    whole, rest = Iterations(), Iterations()
    fit(
        tmp_path, whole, CheckpointHook(interval=1), TextLoggerHook(), module=Module(), max_epochs=3
    )
    path = tmp_path / "epoch_2.pth"
    meta = torch.load(path, weights_only=True)["meta"]
    assert (meta["epoch"], meta["iter"]) == (2, 4)
    (log,) = tmp_path.glob("*.log.json")
    records = [json.loads(text) for text in log.read_text().splitlines()]
    lines = [record for record in records if record.get("mode") == "train"]
    assert [(record["epoch"], record["iter"]) for record in lines] == [(1, 2), (2, 2), (3, 2)]
    begun.clear()
    fit(tmp_path, rest, module=Module(), max_epochs=3, ckpt_path=path, **limit)
    assert begun == [(2, 0), (2, 1), (2, 2)]
    assert rest.seen == [moment for moment in whole.seen if moment[0] == 2]  # type: ignore[attr-defined]


@pytest.mark.parametrize("cut", [3, 4, 5], ids=["within", "last-batch", "within-another"])
def test_a_run_goes_on_within_an_epoch_after_one_that_the_module_has_cut_short(
    cut: int, tmp_path: Path
) -> None:
    class Module(NoValidation):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 2 and self.current_epoch < 2 else None

    def run(name: str, **kwargs: Any) -> tuple[list[float], list[Any]]:
        hooks = CheckpointHook(interval=1, by_epoch=False), TextLoggerHook(interval=2)
        module = Module()
        fit(tmp_path / name, *hooks, module=module, max_epochs=3, **kwargs)
        logs = sorted((tmp_path / name).glob("*.log.json"))
        records = [json.loads(text) for log in logs for text in log.read_text().splitlines()]
        keys = ("epoch", "iter", "loss")
        lines = [[r[key] for key in keys] for r in records if r.get("mode") == "train"]
        return module.losses, lines

    losses, lines = run("whole")
    rest = run("rest", ckpt_path=tmp_path / "whole" / f"iter_{cut}.pth")
    assert rest == (losses[cut:], lines[cut // 2 :])


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch")
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_a_batch_that_an_error_has_cut_in_a_fit_without_hooks_is_not_counted(
    tmp_path: Path,
) -> None:
    class Failing(NoValidation):
        fails = True

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.fails and batch_idx == 2:
                raise RuntimeError("cut")
            return super().training_step(batch, batch_idx)

    class SaveAtError(Callback):
        def on_exception(self, trainer: Any, *args: Any) -> None:
            trainer.save_checkpoint(tmp_path / "cut.ckpt")

    def train(**options: Any) -> None:
        saving = ModelCheckpoint(tmp_path / "whole", filename="{epoch}", save_top_k=-1)
        callbacks = [SaveAtError(), saving]
        trainer = make_trainer(
            tmp_path, callbacks=callbacks, enable_checkpointing=True, max_epochs=2
        )
        trainer.fit(Failing(), make_loader(4), **options)

    with pytest.raises(RuntimeError, match="cut"):
        train()
    Failing.fails = False
    train(ckpt_path=tmp_path / "cut.ckpt")
    recorder = Recorder()
    fit(tmp_path, recorder, max_epochs=3, ckpt_path=tmp_path / "whole" / "epoch=1.ckpt")
    assert recorder.calls[0][:3] == ("before_run", 2, 8)


@pytest.mark.filterwarnings("ignore:train_dataloader yielded None")
def test_loader_that_yields_none(tmp_path: Path) -> None:
    batches = [next(iter(make_loader(1))), None, next(iter(make_loader(1)))]
    recorder = Recorder()
    fit(tmp_path, recorder, batches=DataLoader(batches, batch_size=None))
    assert line(recorder) == "([tTtT])"


def test_manual_optimization_with_two_optimizers(tmp_path: Path) -> None:
    class Module(NoValidation):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = self.loss(batch)
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(loss, retain_graph=True)
                optimizer.step()
            return loss.detach()

        def configure_optimizers(self) -> Any:
            weight, bias = self.parameters()
            return [torch.optim.SGD([weight], lr=0.1), torch.optim.SGD([bias], lr=0.2)]

    class Rates(Recorder):
        rates: Any = None

        def after_run(self, runner: Any) -> None:
            super().after_run(runner)
            self.rates = runner.current_lr()

    recorder = Rates()
    trainer = fit(tmp_path, recorder, module=Module())
    assert trainer.global_step == 8
    assert line(recorder) == "([tTtTtTtT])"
    assert recorder.calls[-1][2] == 4
    assert recorder.rates == {"0": [0.1], "1": [0.2]}


def test_two_fits_go_on_counting(tmp_path: Path) -> None:
    recorder = Recorder()
    trainer = fit(tmp_path, recorder, val=1, batches=2)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(TinyModule(), make_loader(2), make_loader(1))
    assert line(recorder) == "([tTtT]{vV})" * 2
    assert [c[1:3] for c in recorder.calls if c[0] == "before_run"] == [(0, 0), (1, 2)]
    assert recorder.calls[-1][1:3] == (2, 4)
    # finished already: mmcv would call before_run and after_run, Lightning calls nothing
    trainer.fit(TinyModule(), make_loader(2), make_loader(1))
    assert line(recorder) == "([tTtT]{vV})" * 2


@pytest.mark.filterwarnings("ignore")
def test_learning_rate_finder_is_not_the_run(tmp_path: Path) -> None:
    recorder = Recorder()
    finder = LearningRateFinder(num_training_steps=3, attr_name="lr")
    fit(tmp_path, finder, recorder, val=1)
    assert line(recorder) == "([tTtTtTtT]{vV})"
    assert recorder.calls[0] == ("before_run", 0, 0, 0, None)


def test_validate_test_and_predict_alone_call_nothing(tmp_path: Path) -> None:
    class Module(TinyModule):
        def test_step(self, batch: Any, batch_idx: int) -> None: ...
        def predict_step(self, batch: Any, batch_idx: int) -> None: ...

    recorder = Recorder()
    trainer = make_trainer(tmp_path, recorder, HookAdapter([IterTimerHook()]))
    trainer.validate(Module(), make_loader(1), verbose=False)
    trainer.test(Module(), make_loader(1), verbose=False)
    trainer.predict(Module(), make_loader(1))
    assert recorder.calls == []
    trainer.fit(Module(), make_loader(1), make_loader(1))
    trainer.validate(Module(), make_loader(1), verbose=False)
    assert line(recorder) == "([tT]{vV})"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["training_step", "validation_step"])
def test_exception(where: str, error: Any, tmp_path: Path) -> None:
    class Module(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if where == "training_step" and batch_idx == 1:
                raise error("stop")
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            if where == "validation_step":
                raise error("stop")
            return super().validation_step(batch, batch_idx)

    module, recorder = Module(), Recorder()
    trainer = make_trainer(tmp_path, recorder, num_sanity_val_steps=0)
    with pytest.raises((RuntimeError, SystemExit, KeyboardInterrupt)):
        trainer.fit(module, make_loader(2), make_loader(1))
    assert line(recorder) == ("([tTt" if where == "training_step" else "([tTtT]{v")
    # nothing of ours is left on the module and the callbacks
    assert "training_step" not in vars(module)
    assert all(value is not None for key, value in vars(recorder).items() if key[:3] == "on_")


def test_the_module_is_itself_again_after_fit(tmp_path: Path) -> None:
    recorder = Recorder()
    trainer = fit(tmp_path, recorder, val=1)
    assert "training_step" not in vars(trainer.lightning_module)
    assert all(value is not None for key, value in vars(recorder).items() if key[:3] == "on_")


def test_sigterm_leaves_the_module_as_it_was(tmp_path: Path) -> None:
    class Terminate(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, idx: int) -> None:
            if idx == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    module, recorder = NoValidation(), Recorder()
    trainer = make_trainer(tmp_path, recorder, Terminate())
    with pytest.raises(SystemExit):
        trainer.fit(module, make_loader(4))
    assert line(recorder) == "([tTtT"
    assert "training_step" not in vars(module)


def test_our_exception_handling_never_hides_the_error(tmp_path: Path) -> None:
    class Fails(Hook):
        def before_run(self, runner: Any) -> None:
            Driver.of(runner.trainer).fit.callback(int, "in on_exception")

    class Module(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise RuntimeError("the real one")

    with pytest.raises(RuntimeError, match="the real one"):
        fit(tmp_path, Fails(), module=Module())


def test_hooks_from_configure_callbacks(tmp_path: Path) -> None:
    recorder = Recorder()

    class Module(NoValidation):
        def configure_callbacks(self) -> Any:
            return [recorder, HookAdapter([IterTimerHook()])]

    fit(tmp_path, module=Module())
    assert line(recorder) == "([tTtTtTtT])"


def test_validation_by_the_clock_does_not_close_the_epoch(tmp_path: Path) -> None:
    recorder = Recorder()
    fit(tmp_path, recorder, val=1, batches=3, val_check_interval="00:00:00:00")
    assert line(recorder) == "([tT{vV}tT{vV}tT]{vV})"


def test_a_trainer_of_the_other_lightning_is_refused(tmp_path: Path) -> None:
    other = pytest.importorskip("pytorch_lightning")

    class Module(other.LightningModule):  # type: ignore[misc,name-defined]
        def training_step(self, batch: Any, batch_idx: int) -> Any: ...
        def configure_optimizers(self) -> None: ...
        def train_dataloader(self) -> Any:
            return make_loader(1)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = other.Trainer(
        accelerator="cpu", callbacks=[Recorder()], default_root_dir=tmp_path, **quiet
    )
    with pytest.raises(TypeError, match=r"needs lightning\.Trainer"):
        trainer.fit(Module())
