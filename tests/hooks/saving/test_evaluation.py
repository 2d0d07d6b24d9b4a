"""EvalHook: evaluation times, reported scores, best files, and old subclasses."""

from __future__ import annotations

import itertools
import logging
import math
import os
import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import torchmetrics
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, TQDMProgressBar
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchmetrics import MeanSquaredError, MetricCollection

from lightning_hooks import (
    HOOKS,
    CheckpointHook,
    DistEvalHook,
    EvalHook,
    Hook,
    IterTimerHook,
    TextLoggerHook,
    TrainStepModule,
)
from lightning_hooks.hooks.saving.ranking import infer_rule
from lightning_hooks.loggers.base import LoggerHook
from support import training
from support.golden import recorded
from support.logs.text import read_logs
from support.processes import read_ranks, run_job
from support.training import (
    TinyModule,
    TinyNormModule,
    make_loader,
    make_trainer,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended"),
]


GOLDEN = recorded("evaluation")


class Scored(Dataset[int]):
    """A dataset of two samples whose ``evaluate`` returns the given scores in turn."""

    def __init__(self, *scores: Any) -> None:
        self.scores = list(scores)
        self.calls: list[Any] = []

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return index

    def evaluate(self, results: Any, logger: Any = None, **kwargs: Any) -> dict[str, Any]:
        self.calls.append((results, logger, kwargs))
        return self.scores[len(self.calls) - 1]


def nothing(model: Any, loader: Any) -> list[Any]:
    return []


def scored(*scores: Any, **kwargs: Any) -> EvalHook:
    """Return an EvalHook with the given scores; a number is a score named ``acc``."""
    dicts = [s if isinstance(s, dict) else {"acc": s} for s in scores]
    return EvalHook(DataLoader(Scored(*dicts)), test_fn=nothing, **kwargs)


class Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def listening() -> tuple[logging.Logger, list[str]]:
    logger, said = logging.Logger("test"), Said()
    logger.addHandler(said)
    return logger, said.lines


fit = partial(training.fit, host=True, batches=2, max_epochs=4)


def load(path: Any) -> dict[str, Any]:
    return torch.load(path, weights_only=True)


def best_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("best*"))


class Save(Callback):
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir) / "saved.ckpt")


# -- when --------------------------------------------------------------------------------------


class Looks(EvalHook):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[list[int]] = []

    def _do_evaluate(self, runner: Any) -> None:
        self.seen.append([runner.epoch, runner.iter])


@pytest.mark.parametrize("group", range(4), ids=["epochs", "resumed", "iters", "iter_based"])
def test_evaluates_when_mmcv_does(group: int, tmp_path: Path) -> None:
    cases = GOLDEN["cases"][18 * group : 18 * (group + 1)]
    hooks = []
    for runner, limit, by_epoch, resumed, start, interval, _ in cases:
        hooks.append(Looks(DataLoader(range(2)), start, interval, by_epoch))
        assert [runner, limit, by_epoch, resumed] == cases[0][:4]
    by_epoch = runner == "EpochBasedRunner"
    ckpt_path = None
    if resumed:
        ckpt_path = tmp_path / "saved.ckpt"
        fit(tmp_path, IterTimerHook(), callbacks=[Save()], batches=3, max_epochs=resumed)
    limits = {"max_epochs": limit} if by_epoch else {"max_epochs": -1, "max_steps": limit}
    fit(tmp_path, *hooks, batches=3, by_epoch=by_epoch, ckpt_path=ckpt_path, **limits)
    for hook, case in zip(hooks, cases, strict=True):
        assert hook.seen == case[-1], case


def test_validation_of_the_trainer_changes_nothing_about_when(tmp_path: Path) -> None:
    hooks = [Looks(DataLoader(range(2)), 0, 1), Looks(DataLoader(range(2)), None, 3, False)]
    fit(tmp_path, *hooks, batches=3, val=1, max_epochs=2)
    assert hooks[0].seen == [[0, 0], [0, 3], [1, 6]]
    assert hooks[1].seen == [[0, 2], [1, 5]]


def test_dynamic_intervals_are_mmdets(tmp_path: Path) -> None:
    hook = Looks(DataLoader(range(2)), interval=4, dynamic_intervals=[(5, 2), (8, 1)])
    fit(tmp_path, hook, batches=1, max_epochs=9)
    assert [epoch + 1 for epoch, _ in hook.seen] == [4, 6, 8, 9]
    hook = Looks(DataLoader(range(2)), interval=4, by_epoch=False, dynamic_intervals=[(6, 1)])
    fit(tmp_path, hook, batches=8, max_epochs=1)
    assert [step + 1 for _, step in hook.seen] == [4, 6, 7, 8]


# -- evaluations and reports -------------------------------------------------------------------


class Model(nn.Module):
    """A model with mmcv's interface that returns the sums of the images as results."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 2)
        self.modes: list[tuple[bool, bool]] = []

    def forward(self, img: Any, return_loss: bool = True, **kwargs: Any) -> Any:
        self.modes.append((self.training, torch.is_grad_enabled()))
        assert not return_loss
        return [x.sum().item() for x in img]

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        assert self.training
        loss = self.net(data[0]).mean()
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data[0])}


class Images(Dataset[Any]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"img": torch.full((3,), float(index))}

    def evaluate(self, results: Any, logger: Any = None, scale: float = 1.0) -> dict[str, Any]:
        assert results == [3.0 * i for i in range(self.size)]
        return {"acc": scale * len(results), "note": "fine"}


def test_a_model_of_mmcvs_is_run_and_logged_as_validation(tmp_path: Path) -> None:
    logger, said = listening()
    model = Model()
    module = TrainStepModule(model, torch.optim.SGD(model.parameters(), lr=0.1))
    hook = EvalHook(DataLoader(Images(5), batch_size=2), scale=2.0)
    loggers = [IterTimerHook(), TextLoggerHook(interval=2)]
    fit(tmp_path, hook, *loggers, module=module, attributes={"logger": logger}, max_epochs=2)
    assert model.modes == [(False, False)] * 6
    lines = [line for line in said if line.startswith("Epoch(val)")]
    assert lines == [f"Epoch(val) [{n}][3]\tacc: 10.0000, note: fine" for n in (1, 2)]
    assert hook.latest_results == [0.0, 3.0, 6.0, 9.0, 12.0]


def test_by_iteration_what_training_has_to_log_comes_first(tmp_path: Path) -> None:
    class Sees(LoggerHook):
        def log(self, runner: Any) -> None:
            keys = sorted(set(runner.log_buffer.output) - {"data_time", "time", "eval_iter_num"})
            seen.append((runner.iter, self.get_mode(runner), keys))

    seen: list[Any] = []
    hook = scored(*[1.0] * 3, start=0, interval=2, by_epoch=False)
    fit(tmp_path, IterTimerHook(), hook, Sees(interval=1), batches=4, max_epochs=1)
    losses = ["loss"]
    assert seen == [
        (0, "train", losses),
        (1, "train", losses),
        (1, "val", ["acc"]),
        (2, "train", losses),
        (3, "train", losses),
        (3, "val", ["acc"]),
    ]


def test_departure_an_evaluation_before_the_first_iteration_is_logged_by_itself(
    tmp_path: Path,
) -> None:
    class Sees(LoggerHook):
        def log(self, runner: Any) -> None:
            seen.append((runner.iter, self.get_mode(runner), "acc" in runner.log_buffer.output))

    seen: list[Any] = []
    hook = scored(1.0, start=0, interval=10, by_epoch=False)
    hook._should_evaluate = lambda runner: runner.iter == 0 and hook._at_start  # type: ignore
    fit(tmp_path, hook, IterTimerHook(), Sees(interval=1), batches=2, max_epochs=1)
    assert seen == [(0, "val", True), (0, "train", False), (1, "train", False)]


def test_by_epoch_in_a_run_by_iteration_warns_that_nothing_is_evaluated(tmp_path: Path) -> None:
    hook = scored(1.0)
    with pytest.warns(UserWarning, match="EvalHook never evaluates: by_epoch=True, and this run"):
        training.fit(tmp_path, hook, by_epoch=False)
    assert not hook.dataloader.dataset.calls


def test_departure_an_evaluation_before_the_first_epoch_is_told(tmp_path: Path) -> None:
    logger, said = listening()
    hook = scored(0.25, 1.0, start=0)
    fit(tmp_path, hook, TextLoggerHook(), max_epochs=1, attributes={"logger": logger})
    assert "Evaluated before training: eval_iter_num: 2, acc: 0.25" in said


def test_evaluate_gets_results_logger_and_arguments(tmp_path: Path) -> None:
    hook = EvalHook(
        DataLoader(Scored({}, {})),
        test_fn=lambda model, loader: [1, 2],
        metric="bbox",
        classwise=True,
    )
    trainer = fit(tmp_path, hook, max_epochs=1)
    ((results, logger, kwargs),) = hook.dataloader.dataset.calls
    assert (results, kwargs) == ([1, 2], {"metric": "bbox", "classwise": True})
    assert isinstance(logger, logging.Logger)
    assert trainer.state.finished


class WithForward(TinyNormModule):
    def forward(self, x: Any) -> Any:
        return self.net(x)


def test_torchmetrics_instead_of_evaluate(tmp_path: Path) -> None:
    module, outputs = WithForward(), []

    class Sees(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            outputs.append(dict(runner.log_buffer.output))
            x, y = loader.dataset.tensors
            with torch.no_grad():
                self.want = nn.functional.mse_loss(runner.model.eval()(x), y).item()

    loader, look = make_loader(3, seed=5), Sees()
    metrics = MetricCollection(
        {"val/mse": MeanSquaredError(), "rmse": MeanSquaredError(squared=False)}
    )
    hooks = [EvalHook(loader, metric=metrics, save_best="val/mse", rule="less")]
    fit(tmp_path, *hooks, (look, "VERY_LOW"), module=module, max_epochs=1)
    assert outputs[0]["val/mse"] == pytest.approx(look.want)
    assert outputs[0]["rmse"] == pytest.approx(math.sqrt(look.want))
    # departure: a slash makes no directory
    assert best_files(tmp_path) == ["best_val_mse_epoch_1.pth"]

    metric = MeanSquaredError()
    hook = EvalHook(loader, metric=metric, save_best="auto", rule="less")
    fit(tmp_path / "one", hook, module=WithForward(), max_epochs=1)
    assert best_files(tmp_path / "one") == ["best_MeanSquaredError_epoch_1.pth"]
    assert metric.update_count == 0

    def pairs(model: Any, loader: Any) -> Any:
        return [(model(x), y) for x, y in loader]

    other = EvalHook(loader, metric=MeanSquaredError(), test_fn=pairs)
    fit(tmp_path / "two", other, module=WithForward(), max_epochs=1)
    assert other.latest_results.keys() == {"MeanSquaredError"}


@pytest.mark.filterwarnings("ignore:.*EvalHook never evaluates")
@pytest.mark.parametrize("kind", [EvalHook, DistEvalHook])
@pytest.mark.parametrize("arguments", [{}, {"dataloader": None, "by_epoch": False, "interval": 2}])
def test_without_what_it_needs_it_answers_with_the_line_to_write(
    kind: type[EvalHook], arguments: dict[str, Any], tmp_path: Path
) -> None:
    class Callable(TinyModule):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    with pytest.raises(TypeError, match=f"{kind.__name__} has nothing to do") as raised:
        kind(**arguments)
    best, own = re.findall(rf"write ({kind.__name__}\(.*?\)) .* or (.*\)) to", str(raised.value))[0]
    names = {kind.__name__: kind, "loader": make_loader(1), "torchmetrics": torchmetrics}
    for by_epoch in (True, False):  # the suggested code works, bare and in an adapter
        hooks = [eval(line, names) for line in (best, own)]
        run = training.fit if by_epoch else partial(fit, by_epoch=False)
        run(tmp_path, *hooks, module=Callable, val=1, max_epochs=1)


def test_the_trainers_validation_has_a_name_as_the_first_argument(tmp_path: Path) -> None:
    hook = EvalHook("validation", interval=2)
    assert fit(tmp_path, hook, val=1, max_epochs=2).current_epoch == 2


def test_a_subclass_with_an_evaluation_of_its_own_needs_nothing(tmp_path: Path) -> None:
    class Own(EvalHook):
        def _do_evaluate(self, runner: Any) -> None:
            seen.append(runner.epoch)

    seen: list[int] = []
    fit(tmp_path, Own(), val=1, max_epochs=2)
    assert seen == [1, 2]


def test_the_trainers_own_validation(tmp_path: Path) -> None:
    class Worse(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", [0.5, 0.25, 0.75, 0.2, 0][self.current_epoch])

    logger, said = listening()
    hook = EvalHook(None, save_best="val_loss")
    options = {"module": Worse(), "val": 1, "attributes": {"logger": logger}}
    trainer = fit(tmp_path, hook, TextLoggerHook(), num_sanity_val_steps=2, **options)
    assert best_files(tmp_path) == ["best_val_loss_epoch_4.pth"]
    assert [line for line in said if line.startswith("Best")] == [
        f"Best val_loss is {score:.4f} at {epoch} epoch: saved best_val_loss_epoch_{epoch}.pth{old}"
        for score, epoch, old in (
            (0.5, 1, ""),
            (0.25, 2, "; removed best_val_loss_epoch_1.pth"),
            (0.2, 4, "; removed best_val_loss_epoch_2.pth"),
        )
    ]
    # logged once
    assert len([line for line in said if line.startswith("Epoch(val)")]) == 4
    trainer.validate(Worse(), make_loader(1), verbose=False)
    assert best_files(tmp_path) == ["best_val_loss_epoch_4.pth"]


@pytest.mark.parametrize("by_epoch", [True, False])
def test_the_trainers_own_validation_by_iteration(by_epoch: bool, tmp_path: Path) -> None:
    class Falls(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", 1.0 / (1 + self.global_step))

    hook = EvalHook(None, by_epoch=False, interval=4, save_best="auto", keep_best=9)
    check = {"val_check_interval": 2, "check_val_every_n_epoch": None, "batches": 4, "val": 1}
    limits = {"max_epochs": 3} if by_epoch else {"max_epochs": -1, "max_steps": 12}
    fit(tmp_path, hook, module=Falls(), by_epoch=by_epoch, **check, **limits)
    assert best_files(tmp_path) == [f"best_val_loss_iter_{n}.pth" for n in (12, 4, 8)]
    for n in (4, 8, 12):
        assert load(tmp_path / f"best_val_loss_iter_{n}.pth")["global_step"] == n


def test_departure_the_initial_evaluation_leaves_the_model_in_train_mode(tmp_path: Path) -> None:
    def evaluates(model: Any, loader: Any) -> list[Any]:
        model.eval()
        return []

    class Look(Hook):
        def after_train_iter(self, runner: Any) -> None:
            modes.append([m.training for m in runner.module.modules()])

    modes: list[Any] = []
    model = Model()
    modules = [TinyNormModule(), TrainStepModule(model, torch.optim.SGD(model.parameters(), 0.1))]
    for by_epoch, module in itertools.product((True, False), modules):
        loader = DataLoader(Scored(*[{}] * 9))
        hook = EvalHook(loader, start=0, by_epoch=by_epoch, test_fn=evaluates)
        fit(tmp_path, hook, Look(), module=module, max_epochs=2)
        assert len(loader.dataset.calls) == (3 if by_epoch else 5)
    assert all(all(flags) for flags in modes)


def test_departure_the_random_state_is_not_moved(tmp_path: Path) -> None:
    def draws(model: Any, loader: Any) -> list[Any]:
        torch.rand(3)
        return list(loader)

    losses = []
    for hooks in (
        [],
        [EvalHook(DataLoader(Scored(*[{}] * 9), shuffle=True), start=0, test_fn=draws)],
    ):
        torch.manual_seed(0)
        module = TinyModule()
        trainer = make_trainer(tmp_path, *hooks, max_epochs=3)
        trainer.fit(module, make_loader(4, shuffle=True))
        losses.append(module.losses)
    assert losses[0] == losses[1]


def test_iterable_data_have_no_length(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(make_loader(3).dataset)

        def evaluate(self, results: Any, logger: Any = None) -> dict[str, Any]:
            return {"count": len(results)}

    hook = EvalHook(DataLoader(Stream(), batch_size=2), save_best="count", rule="greater")
    fit(tmp_path, hook, module=WithForward(), max_epochs=1)
    assert best_files(tmp_path) == ["best_count_epoch_1.pth"]


def test_the_bar_is_of_the_trainers_kind(tmp_path: Path, capfd: Any) -> None:
    hook = EvalHook(make_loader(2), metric=MeanSquaredError())
    fit(tmp_path, hook, module=WithForward(), max_epochs=1)
    assert "Evaluating" not in "".join(capfd.readouterr())
    bar = {"callbacks": [TQDMProgressBar()], "enable_progress_bar": True}
    fit(tmp_path, hook, module=WithForward(), max_epochs=1, **bar)
    assert "Evaluating" in "".join(capfd.readouterr())


def test_old_subclasses_override_their_points(tmp_path: Path) -> None:
    class Old(EvalHook):
        """A subclass with ``_do_evaluate`` overridden as in mmdet."""

        def __init__(self, *args: Any, dynamic_intervals: Any = None, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.latest_results = None

        def _do_evaluate(self, runner: Any) -> None:
            if not self._should_evaluate(runner):
                return
            self.latest_results = self.test_fn(runner.model, self.dataloader)
            runner.log_buffer.output["eval_iter_num"] = len(self.dataloader)
            key_score = self.evaluate(runner, self.latest_results)
            if self.save_best and key_score:
                self._save_ckpt(runner, key_score)

    class Topped(Old):
        _default_greater_keys = ["f1"]  # noqa: RUF012

        def evaluate(self, runner: Any, results: Any) -> Any:
            super().evaluate(runner, results)
            return 1.0

    class OwnRule(EvalHook):
        def _init_rule(self, rule: Any, key_indicator: str) -> None:
            self.rule, self.key_indicator = "less", key_indicator
            self.compare_func = lambda x, y: x < y

    loader = DataLoader(Scored({"f1": 0.5}, {"f1": 0.6}))
    fit(tmp_path, Topped(loader, save_best="auto", test_fn=nothing), max_epochs=2)
    assert best_files(tmp_path) == ["best_f1_epoch_1.pth"]
    loader = DataLoader(Scored({"f1": 0.5}, {"f1": 0.4}))
    fit(tmp_path, OwnRule(loader, save_best="f1", test_fn=nothing), max_epochs=2)
    assert best_files(tmp_path) == ["best_f1_epoch_2.pth"]


# -- the best ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if i % 3 == 0 else pytest.mark.slow)
        for i, name in enumerate(GOLDEN["best"])
    ],
)
def test_best_is_what_mmcv_calls_best(name: str, tmp_path: Path) -> None:
    want = GOLDEN["best"][name]
    logger, said = listening()
    scores = [{want["key"]: score} for score in want["scores"]]
    hook = scored(*scores, by_epoch=want["by_epoch"], save_best="auto")
    epochs = 4 if want["by_epoch"] else 2
    trainer = fit(tmp_path, hook, max_epochs=epochs, attributes={"logger": logger})
    assert best_files(tmp_path) == want["files"]
    saved, best = want["said"][::2], want["said"][1::2]  # one of our lines replaces two of mmcv's
    lines = [f"{b[:-1]}: saved {s.split()[-1][:-1]}" for s, b in zip(saved, best, strict=True)]
    assert [line.partition(";")[0] for line in said if line.startswith("Best ")] == lines
    path = tmp_path / want["best_ckpt"]
    messages = load(path)["meta"]["hook_msgs"]
    assert (messages["best_score"], messages["best_ckpt"]) == (want["best_score"], str(path))
    assert hook.best_ckpt_path == str(path)
    assert trainer.state.finished


@pytest.mark.parametrize("key", GOLDEN["rules"])
def test_rules_are_inferred_as_by_mmcv(key: str) -> None:
    want = GOLDEN["rules"][key]
    greater, less = EvalHook._default_greater_keys, EvalHook._default_less_keys
    if want is None:
        with pytest.raises(ValueError, match="Cannot infer the rule"):
            infer_rule(key, greater, less)
    else:
        assert infer_rule(key, greater, less) == want


def test_departure_a_score_of_0_counts(tmp_path: Path) -> None:
    fit(tmp_path, scored(-1.0, 0, -2.0, -3.0, save_best="acc"))
    assert best_files(tmp_path) == ["best_acc_epoch_2.pth"]


def test_departure_less_keys_may_be_a_string() -> None:
    hook = EvalHook(make_loader(1), save_best="error", less_keys="error")
    assert (hook.rule, hook.less_keys) == ("less", ("error",))


def test_departure_nan_is_never_best(tmp_path: Path) -> None:
    nan = float("nan")
    fit(tmp_path, scored(nan, torch.tensor(nan), nan, nan, save_best="acc"))
    assert best_files(tmp_path) == []


def test_departure_a_slash_in_a_key_makes_no_directory_and_the_file_is_lightnings(
    tmp_path: Path,
) -> None:
    fit(tmp_path, scored({"coco/mAP": 0.5}, save_best="coco/mAP"), max_epochs=1)
    assert best_files(tmp_path) == ["best_coco_mAP_epoch_1.pth"]
    module = TinyModule()
    trainer = fit(
        tmp_path, module=module, max_epochs=2, ckpt_path=tmp_path / "best_coco_mAP_epoch_1.pth"
    )
    assert (len(module.losses), trainer.current_epoch) == (2, 2)


def test_several_keys_and_several_files_of_each(tmp_path: Path) -> None:
    rows = [(0.5, 1.0), (0.7, 3.0), (0.6, 2.0), (0.8, 0.5)]
    scores = [{"acc": acc, "dist": dist} for acc, dist in rows]
    hook = scored(*scores, save_best=["acc", "dist"], rule=["greater", "less"], keep_best=2)
    trainer = fit(tmp_path, hook)
    assert best_files(tmp_path) == [
        *("best_acc_epoch_2.pth", "best_acc_epoch_4.pth"),
        *("best_dist_epoch_1.pth", "best_dist_epoch_4.pth"),
    ]
    messages = load(tmp_path / "best_acc_epoch_4.pth")["meta"]["hook_msgs"]
    assert messages["best_score"] == 0.8
    assert messages["best_score_dist"] == 0.5
    assert messages["best_ckpt_dist"] == str(tmp_path / "best_dist_epoch_4.pth")
    assert (hook.rule, hook.key_indicator) == ("greater", "acc")
    assert trainer.state.finished


def test_two_hooks_of_different_keys_keep_their_own(tmp_path: Path) -> None:
    hooks = [
        scored({"acc": 0.5}, {"acc": 0.7}, save_best="acc"),
        scored({"loss": 0.1}, {"loss": 0.9}, save_best="loss"),
    ]
    fit(tmp_path, *hooks, max_epochs=2, host=False)
    assert best_files(tmp_path) == ["best_acc_epoch_2.pth", "best_loss_epoch_1.pth"]


def test_departure_two_hooks_of_the_same_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two hooks save the best by 'acc'"):
        fit(tmp_path, scored(1, save_best="acc"), scored(1, save_best="acc"))
    with pytest.raises(ValueError, match="two hooks save the best by 'acc'"):
        fit(tmp_path, scored(1, save_best="auto"), scored(1, save_best="auto"))


def test_a_run_goes_on_from_the_best_file_bit_for_bit(tmp_path: Path) -> None:
    def run(where: str, *scores: float, **kwargs: Any) -> tuple[EvalHook, list[Any]]:
        torch.manual_seed(kwargs.pop("seed", 0))
        hook, module = (
            scored(*scores, save_best="acc", by_epoch=kwargs.pop("hook", True)),
            TinyModule(),
        )
        kwargs["batches"] = 3
        fit(tmp_path / where, hook, module=module, **kwargs)
        return hook, module.net.weight.tolist()

    weights = run("a", 0.5, 0.7, 0.6, 0.9)[1]
    assert best_files(tmp_path / "a") == ["best_acc_epoch_4.pth"]
    run("b", 0.5, 0.7, max_epochs=2)
    path = tmp_path / "b" / "best_acc_epoch_2.pth"
    again = run("b", 0.6, 0.9, seed=1, ckpt_path=path)[1]
    assert again == weights
    assert best_files(tmp_path / "b") == ["best_acc_epoch_4.pth"]  # 0.6 was not; 0.7's is gone
    assert load(tmp_path / "b" / "best_acc_epoch_4.pth")["meta"]["hook_msgs"]["best_score"] == 0.9
    # by iteration: at the end of an epoch and within an epoch
    weights = run("c", *[0.1, 0.2, 0.9, 0.4, 0.5, 0.1], hook=False, max_epochs=2)[1]
    path = tmp_path / "c" / "best_acc_iter_3.pth"
    assert run("c", *[0.4] * 3, hook=False, seed=1, max_epochs=2, ckpt_path=path)[1] == weights
    run("d", *[0.1, 0.2, 0.3, 0.4, 0.5, 0.1], hook=False, max_epochs=2)
    path = tmp_path / "d" / "best_acc_iter_5.pth"
    assert load(path)["global_step"] == 5
    run("d", 0.4, hook=False, seed=1, max_epochs=2, ckpt_path=path)  # an additional iteration
    assert best_files(tmp_path / "d") == ["best_acc_iter_5.pth"]


def test_a_best_file_of_an_epoch_has_the_modules_own_end_of_the_epoch(tmp_path: Path) -> None:
    class Ends(TinyModule):
        def on_train_epoch_end(self) -> None:
            self.log("epochs", self.current_epoch + 1.0)

    def train(*scores: float, **kwargs: Any) -> Any:
        hooks = scored(*scores, save_best="acc"), TextLoggerHook()
        fit(tmp_path, *hooks, module=Ends(), max_epochs=2, **kwargs)
        return read_logs(tmp_path)

    whole = train(0.9, 0.5)
    assert train(0.5, ckpt_path=tmp_path / "best_acc_epoch_1.pth") == whole


@pytest.mark.parametrize("by_epoch", [True, False])
def test_departure_before_training_the_file_is_named_by_what_is_done(
    by_epoch: bool, tmp_path: Path
) -> None:
    hook = scored(*[0.9, 0.5, 0.5, 0.5, 0.5], start=0, by_epoch=by_epoch, save_best="acc")
    module = TinyModule()
    before = module.net.weight.tolist()
    fit(tmp_path, hook, module=module, max_epochs=2)
    path = tmp_path / f"best_acc_{'epoch' if by_epoch else 'iter'}_0.pth"
    assert best_files(tmp_path) == [path.name]
    assert load(path)["state_dict"]["net.weight"].tolist() == before
    resumed = TinyModule(seed=3)
    again = scored(*[0.5] * 5, start=0, by_epoch=by_epoch, save_best="acc")
    fit(tmp_path, again, module=resumed, max_epochs=2, ckpt_path=path)
    assert resumed.net.weight.tolist() == module.net.weight.tolist()
    assert len(resumed.losses) == 4


def test_departure_a_run_that_mmcv_began_is_gone_on_with_and_its_file_stays(
    tmp_path: Path,
) -> None:
    meta = {"hook_msgs": {"best_score": 0.8, "best_ckpt": str(tmp_path / "best_acc_epoch_9.pth")}}
    (tmp_path / "best_acc_epoch_9.pth").write_text("mmcv's")
    fit(tmp_path, scored(0.7, 0.75, save_best="acc"), meta=meta, max_epochs=2)
    assert best_files(tmp_path) == ["best_acc_epoch_9.pth"]
    fit(tmp_path, scored(0.7, 0.9, save_best="acc"), meta=meta, max_epochs=2)
    # not in our manifest
    assert best_files(tmp_path) == ["best_acc_epoch_2.pth", "best_acc_epoch_9.pth"]


def test_departure_the_old_best_is_deleted_after_the_new_one_is_there(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    class FillsUp(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space"):
        fit(tmp_path, scored(0.1, 0.2, save_best="acc"), FillsUp())
    assert best_files(tmp_path) == ["best_acc_epoch_1.pth"]
    load(tmp_path / "best_acc_epoch_1.pth")


def test_out_dir_fsspec_and_two_fits(tmp_path: Path) -> None:
    hook = scored(0.1, 0.2, save_best="acc", out_dir="memory://test_evaluation")
    trainer = fit(tmp_path, hook, max_epochs=1, host=False)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(trainer.lightning_module, make_loader(2))
    assert hook.best_ckpt_path == f"memory://test_evaluation/{tmp_path.name}/best_acc_epoch_2.pth"
    assert hook.out_dir == "memory://test_evaluation"
    import fsspec

    found = fsspec.filesystem("memory").ls(f"/test_evaluation/{tmp_path.name}", detail=False)
    assert [Path(name).name for name in found] == ["best_acc_epoch_2.pth", "checkpoints.json"]


def test_the_same_hook_in_a_new_trainer_begins_anew(tmp_path: Path) -> None:
    hook = scored(0.9, 0.1, save_best="acc")
    for name in ("a", "b"):
        fit(tmp_path / name, hook, max_epochs=1)
        assert best_files(tmp_path / name) == ["best_acc_epoch_1.pth"]


def test_best_of_a_trainer_with_checkpoints(tmp_path: Path) -> None:
    hooks = [CheckpointHook(interval=1), scored(0.1, 0.9, 0.2, save_best="acc")]
    trainer = fit(tmp_path, *hooks, host=False, max_epochs=3)
    assert trainer.checkpoint_callback.best_model_path == hooks[1].best_ckpt_path
    messages = load(tmp_path / "epoch_3.pth")["meta"]["hook_msgs"]
    assert messages["best_score"] == 0.9


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "hosted"])
def test_lightnings_own_idea_of_the_best_is_warned_of(direct: bool, tmp_path: Path) -> None:
    hook = scored(0.9, 0.1, save_best="acc")
    with pytest.warns(UserWarning, match=r"default ModelCheckpoint.*best_ckpt_path"):
        fit(tmp_path, hook, host=not direct, max_epochs=2, enable_checkpointing=True)
    assert str(hook.best_ckpt_path).endswith("best_acc_epoch_1.pth")
    own = ModelCheckpoint(tmp_path / "own", monitor="train_loss")  # the user knows its origin
    silent = scored(0.9, save_best="acc"), own
    fit(tmp_path / "b", *silent, host=False, max_epochs=1, enable_checkpointing=True)


def test_fast_dev_run_writes_nothing(tmp_path: Path) -> None:
    fit(tmp_path, scored(0.1, save_best="acc"), fast_dev_run=1)
    assert best_files(tmp_path) == []


def test_an_empty_result_and_an_empty_meta_warn(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Since `eval_res` is an empty dict"):
        fit(tmp_path, scored({}, save_best="auto"), max_epochs=1)

    class Empties(Hook):
        priority = "HIGHEST"

        def before_run(self, runner: Any) -> None:
            runner.meta = None

    with pytest.warns(UserWarning, match=r"runner.meta is None. Creating an empty one."):
        fit(tmp_path, Empties(), scored(1.0, save_best="acc"), max_epochs=1)


# -- arguments and the rest --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"dataloader": [1]}, TypeError, "dataloader must be a pytorch DataLoader"),
        ({"interval": 0}, ValueError, "interval must be a positive number, but got 0"),
        ({"interval": "1"}, TypeError, "interval must be an int"),
        ({"start": -1}, ValueError, "start epoch -1 is smaller than 0"),
        ({"by_epoch": 1}, TypeError, "by_epoch"),
        ({"save_best": True}, TypeError, "save_best"),
        ({"save_best": ["a/b", "a_b"], "rule": "less"}, ValueError, "different names"),
        ({"save_best": ["auto", "acc"]}, ValueError, "stands alone"),
        ({"save_best": "unsupport"}, ValueError, "Cannot infer the rule for key unsupport"),
        ({"save_best": "auto", "rule": "most"}, KeyError, "rule must be greater, less or None"),
        ({"save_best": ["acc"], "rule": ["less", "less"]}, ValueError, "one for each key"),
        ({"save_best": "acc", "greater_keys": 3}, TypeError, "greater_keys"),
        ({"keep_best": 0}, ValueError, "keep_best"),
        ({"test_fn": 3}, TypeError, "test_fn"),
        ({"dynamic_intervals": [3]}, TypeError, "dynamic_intervals"),
        ({"dynamic_intervals": [(3, 0)]}, ValueError, "dynamic_intervals"),
        ({"file_client_args": {"backend": "petrel"}}, ValueError, "petrel"),
        ({"dataloader": None, "metric": "bbox"}, ValueError, "metric without a dataloader"),
    ],
)
def test_refuses_bad_arguments(arguments: Any, error: Any, match: str) -> None:
    for cls in (EvalHook, DistEvalHook):
        with pytest.raises(error, match=match):
            cls(**{"dataloader": make_loader(1), **arguments})


def test_says_what_cannot_be_evaluated(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="TensorDataset has no evaluate"):
        fit(tmp_path, EvalHook(make_loader(1)))
    with pytest.raises(KeyError, match="save_best='ac' is no score; did you mean 'acc'"):
        fit(tmp_path, scored(1.0, save_best="ac", rule="less"))
    with pytest.raises(TypeError, match="takes no return_loss"):
        fit(tmp_path, EvalHook(DataLoader(Images(2))), module=WithForward())
    with pytest.raises(TypeError, match="the score 'acc' must be a number"):
        fit(tmp_path, scored("good", save_best="acc"))


def test_pickles_and_is_not_registered(tmp_path: Path) -> None:
    hook = scored(0.5, 0.6, save_best="acc")
    fit(tmp_path, pickle.loads(pickle.dumps(hook)), max_epochs=1)
    fit(tmp_path, hook, max_epochs=1)
    assert pickle.loads(pickle.dumps(hook)).save_best == "acc"
    assert "EvalHook" not in HOOKS.module_dict


# -- two processes -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: Any) -> tuple[list[Any], Path]:
    out = tmp_path_factory.mktemp("ranks")
    run_job("evaluation", out)
    return read_ranks(out), out


@pytest.mark.parametrize("way", ["files", "sent", "whole", "uneven"])
def test_departure_results_of_all_ranks_come_in_the_order_of_the_data_and_none_is_lost(
    way: str, ranks: Any
) -> None:
    first, second = (rank[way] for rank in ranks[0])
    assert first["results"] == [3.0 * i for i in range(5)]
    assert second["results"] is None
    assert not (ranks[1] / way / ".eval_hook").exists()


@pytest.mark.parametrize("way", ["files", "sent"])
def test_all_ranks_write_what_rank_0_finds_best(way: str, ranks: Any) -> None:
    assert [rank[way]["best"] for rank in ranks[0]] == ["best_acc_epoch_2.pth"] * 2
    assert best_files(ranks[1] / way) == ["best_acc_epoch_2.pth"]
    assert load(ranks[1] / way / "best_acc_epoch_2.pth")["meta"]["hook_msgs"]["best_score"] == 2


def test_batch_norm_statistics_are_those_of_rank_0(ranks: Any) -> None:
    first, second = ranks[0]
    assert first["files"]["mean_before"] != second["files"]["mean_before"]
    assert first["files"]["mean_after"] == second["files"]["mean_after"]
    assert first["files"]["mean_after"] == first["files"]["mean_before"]
    assert second["sent"]["mean_after"] == second["sent"]["mean_before"]  # not asked for


def test_a_metric_is_computed_over_all_ranks(ranks: Any) -> None:
    assert [rank["metric"]["results"] for rank in ranks[0]] == [{"MeanMetric": 2.5}] * 2
    # every rank has evaluated all: not added up
    assert [rank["sum"]["results"] for rank in ranks[0]] == [{"SumMetric": 15.0}] * 2


def test_rank_0_decides_on_the_trainers_own_validation(ranks: Any) -> None:
    assert [rank["own"]["best"] for rank in ranks[0]] == ["best_val_loss_epoch_1.pth"] * 2
    assert best_files(ranks[1] / "own") == ["best_val_loss_epoch_1.pth"]


def test_departure_dist_eval_hook_works_without_a_process_group(tmp_path: Path) -> None:
    hook = DistEvalHook(DataLoader(Images(5), batch_size=2), save_best="acc", scale=2.0)
    model = Model()
    module = TrainStepModule(model, torch.optim.SGD(model.parameters(), lr=0.1))
    fit(tmp_path, hook, module=module, max_epochs=1)
    assert best_files(tmp_path) == ["best_acc_epoch_1.pth"]


def test_validation_sees_the_module_as_before(tmp_path: Path) -> None:
    class Modes(Callback):
        def on_validation_batch_start(self, trainer: L.Trainer, module: Any, *args: Any) -> None:
            modes.append(module.training)

    modes: list[bool] = []
    fit(tmp_path, scored(1, 2), callbacks=[Modes()], val=1, max_epochs=2)
    assert modes == [False] * 3


def test_an_error_of_rank_0_is_raised_on_all_ranks(ranks: Any) -> None:
    errors = [rank["errors"]["no score"] for rank in ranks[0]]
    assert errors == ["LookupError: there are no annotations"] * 2


def test_ranks_without_a_shared_directory_are_told_to_send_the_results(ranks: Any) -> None:
    first, second = (rank["errors"]["own disk"] for rank in ranks[0])
    assert first == second
    assert first.startswith("FileNotFoundError: rank 0 finds no ")
    assert "gpu_collect=True" in first
