"""Every hook in every situation of the contract, and beside a hook that raises an error.

``make test`` runs a single probe in all situations; ``make slow`` runs every hook.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import re
import shutil
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import HOOKS, HookAdapter
from lightning_hooks.engine.points import STAGES
from support.contract import CASES, TRACKERS, build, needs
from support.contract.situations import SITUATIONS, OnPurposeError, Raises, left_behind, train
from support.house import House, changes, classes_of, differences, house_of
from support.probes import Recorder
from support.processes import read_ranks, run_job
from support.training import TinyNormModule, make_loader, make_trainer

# hooks that refuse a situation before the first iteration, with the message
REFUSES = {
    ("PreciseBNHook", "manual"): "must not do here; give PreciseBNHook",
    ("GradientCumulativeOptimizerHook", "accumulation"): "the hook owns backward and step",
    ("GradientCumulativeFp16OptimizerHook", "accumulation"): "the hook owns backward and step",
    ("GradientCumulativeOptimizerHook", "manual"): "does backward and step itself",
    ("GradientCumulativeFp16OptimizerHook", "manual"): "does backward and step itself",
    # one iteration is too short for the schedules
    ("CosineAnnealingCooldownLrUpdaterHook", "fast"): "must be less than the run's length",
    ("YOLOXLrUpdaterHook", "fast"): "leave none of 1",
    ("CyclicMomentumUpdaterHook", "fast"): "more than the run has",
    ("ProfilerHook", "fast"): "the run has 1 iterations",
}
OTHERS = {("BestCheckpointHook", "two loaders"): {"save_best": "val_loss/dataloader_idx_1"}}
"""Arguments required by a situation."""
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:The epoch-end checkpoint|Resume iterations|.*cumulative"),
    pytest.mark.filterwarnings("ignore:.*BatchNorm", "ignore:.*UpdaterHook of "),
    pytest.mark.filterwarnings("ignore:.*has nothing to compare|.*`fast_dev_run`|.*too few"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
]
hosted = pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])


@pytest.fixture(autouse=True)
def mlflow_begins_with_a_database(request: Any, tmp_path: Path) -> None:
    """Copy an empty MLflow database, because creating the tables takes seconds."""
    called = getattr(request.node, "callspec", None)
    if called is not None and called.params.get("name") == "MlflowLoggerHook":
        shutil.copy(request.getfixturevalue("empty_db"), tmp_path / "mlflow.db")


def goes_through(hook: Any, name: str, situation: str, host: bool, tmp_path: Path) -> None:
    make_module = SITUATIONS[situation][0]
    module, plain = make_module(), make_module()
    before = set(vars(module))
    refused = REFUSES.get((name, situation))
    if refused is not None:
        with pytest.raises(ValueError, match=refused):
            train(tmp_path, module, situation, hook, host=host)
        return
    trainer, begun = train(tmp_path, module, situation, hook, host=host)
    assert trainer.state.finished
    _, expected = train(tmp_path / "other", plain, situation, host=False)
    assert begun.batches == expected.batches > 0
    assert left_behind(module, before) == {*left_behind(plain, before)}
    assert all(value.isfinite().all() for value in module.state_dict().values())


def survives(hook: Any, point: str, host: bool, tmp_path: Path) -> None:
    module = TinyNormModule()
    before = set(vars(module))
    with pytest.raises(OnPurposeError, match="on purpose") as caught:
        train(tmp_path, module, "plain", hook, (Raises(point), "LOWEST"), host=True)
    assert f"in hook Raises.{point}" in "\n".join(caught.value.__notes__)
    assert left_behind(module, before) <= {"losses"}
    again, _ = train(tmp_path, TinyNormModule(), "plain", hook, host=host)
    assert again.state.finished


@hosted
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_probe_goes_through_all_situations(situation: str, host: bool, tmp_path: Path) -> None:
    probe = Recorder()
    goes_through(probe, "Recorder", situation, host, tmp_path)
    for before in (stage for stage in STAGES if stage.startswith("before_")):
        after = before.replace("before", "after")
        assert probe.points.count(before) == probe.points.count(after), before
    assert (probe.points[0], probe.points[-1]) == ("before_run", "after_run")


@pytest.mark.parametrize("point", STAGES)
def test_a_probe_survives_an_exception_in_each_point(point: str, tmp_path: Path) -> None:
    survives(Recorder(), point, True, tmp_path)


# a run of one batch, as by fast_dev_run, has room for one phase
@pytest.mark.filterwarnings("ignore:Phases.*never comes")
@pytest.mark.slow
@hosted
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", CASES)
def test_every_hook_goes_through_all_situations(
    name: str, situation: str, host: bool, tmp_path: Path
) -> None:
    arguments = OTHERS.get((name, situation), CASES[name][0])
    hook = HOOKS.build({"type": name, **arguments})
    goes_through(hook, name, situation, host, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("point", STAGES)
@pytest.mark.parametrize("name", CASES)
def test_every_hook_survives_an_exception_in_each_point(
    name: str, point: str, tmp_path: Path
) -> None:
    survives(build(name), point, False, tmp_path)


@pytest.mark.parametrize("how", ["together", pytest.param("each", marks=pytest.mark.slow)])
def test_two_ranks_train_with_every_hook_and_stay_equal(how: str, tmp_path: Path) -> None:
    pytest.importorskip("rich")  # of StepTimeHook
    run_job("contract", tmp_path, how, timeout=300)
    first, second = read_ranks(tmp_path, how)
    assert first == second
    assert first
    assert all(run["batches"] == 4 for run in first.values())


# -- traces of a fit on the Trainer, the module and their classes ----------------------------------

KINDS = ("LrUpdaterHook", "MomentumUpdaterHook", "OptimizerHook")
"""Kinds of hooks limited to one per Trainer."""
ALONE = [[name for name in CASES if name.endswith(kind)] for kind in KINDS]
TOGETHER = [name for name in CASES if name not in TRACKERS and not name.endswith(KINDS)]
SETS = [[*filter(None, names)] for names in zip_longest(*ALONE, sorted(TRACKERS))]
SETS[0] += TOGETHER
"""All hooks, in sets of hooks for one Trainer."""

ERRORS: dict[str, tuple[str, type[BaseException]]] = {
    "an error in setup": ("setup", OnPurposeError),
    "Ctrl-C in the sanity check": ("on_sanity_check_end", KeyboardInterrupt),
    "an error as training begins": ("on_train_start", OnPurposeError),
    "an error in a batch": ("on_train_batch_end", OnPurposeError),
    "Ctrl-C in a validation": ("on_validation_batch_end", KeyboardInterrupt),
    "an error in teardown": ("teardown", OnPurposeError),
}
ENDS = ["a second fit", "fast_dev_run", "a validation alone", *ERRORS]


class Ends(Callback):
    """Copies the module in a batch; may raise an error."""

    def __init__(self, end: str) -> None:
        self.event, self.error = ERRORS.get(end, ("on_train_batch_start", None))
        setattr(self, self.event, self.act)
        self.copies: list[Any] = []

    def act(self, trainer: Any, module: Any, *_: Any, **__: Any) -> None:
        if not trainer.sanity_checking or "sanity" in self.event:
            self.copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
            if self.error is not None:
                raise self.error("on purpose")


def house(folder: Path, end: str, *hooks: Any, **options: Any) -> House:
    """Train; return the attributes of all objects, and the class attributes changed by the fit."""
    torch.manual_seed(0)
    module, callback = TinyNormModule(), Ends(end)
    loaders = {"train": make_loader(4, shuffle=True), "val": make_loader(2)}
    options = {"max_epochs": 2, "fast_dev_run": 4 * (end == "fast_dev_run"), **options}
    trainer = make_trainer(folder, *hooks, callback, **options)
    roots = {"trainer": trainer, "module": module, "loaders": loaders}
    before = classes_of(**roots)
    with contextlib.suppress(OnPurposeError, KeyboardInterrupt, SystemExit):
        if end == "a validation alone":
            trainer.validate(module, loaders["val"], verbose=False)
        else:
            trainer.fit(module, loaders["train"], loaders["val"])
        if end == "a second fit":
            trainer.fit_loop.max_epochs = 3
            trainer.fit(module, loaders["train"], loaders["val"])
    found = house_of(**roots, copies=callback.copies, optimizers=trainer.optimizers)
    return {**found, **changes(before, classes_of(**roots))}


STAYS = "|".join(
    (
        r"_strategy_flag\.save_checkpoint",  # averages are in files saved after the fit, too
        "optim_progress|optim_step_progress",  # steps by hooks count as manual steps
        r"\.scaler\.",  # the user has given Fp16OptimizerHook the scale
        r"^copies.*\.training:",  # in the fit FreezeHook's parts are in eval mode
    )
)


def leaves_nothing(tmp_path: Path, end: str, names: list[str], host: bool) -> None:
    hooks = [build(name) for name in names]
    given = [HookAdapter(hooks)] if host else hooks
    files = {"enable_checkpointing": not host}
    expected = house(tmp_path / "plain", end, **files, **needs(*hooks))
    found = house(tmp_path, end, *given, **files, **needs(*hooks))
    assert [one for one in differences(found, expected) if not re.search(STAYS, one)] == []


@pytest.mark.parametrize("number", range(len(SETS)))
def test_a_fit_leaves_nothing_on_what_is_not_ours(
    number: int, tmp_path: Path, request: Any
) -> None:
    if "MlflowLoggerHook" in SETS[number]:
        shutil.copy(request.getfixturevalue("empty_db"), tmp_path / "mlflow.db")
    leaves_nothing(tmp_path, "a fit", SETS[number], host=number % 2 == 0)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("number", range(len(ALONE[-1])))
def test_nor_does_a_fit_that_ends_otherwise(number: int, end: str, tmp_path: Path) -> None:
    leaves_nothing(tmp_path, end, [n for n in SETS[number] if n not in TRACKERS], host=False)
