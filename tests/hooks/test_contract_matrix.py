"""The contract's matrix: every hook in every situation, and beside a hook that raises.

In ``make test`` one probe goes through all of it; with ``make slow`` every hook does.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import HOOKS
from lightning_hooks.engine.points import STAGES
from support.contract import CASES, build
from support.contract.situations import SITUATIONS, OnPurposeError, Raises, left_behind, train
from support.probes import Recorder
from support.processes import read_ranks, run_job
from support.training import TinyNormModule

# which hooks refuse a situation before the first iteration, and how
REFUSES = {
    ("PreciseBNHook", "manual"): "must not do here; give PreciseBNHook",
    ("GradientCumulativeOptimizerHook", "accumulation"): "the hook owns backward and step",
    ("GradientCumulativeFp16OptimizerHook", "accumulation"): "the hook owns backward and step",
    ("GradientCumulativeOptimizerHook", "manual"): "does backward and step itself",
    ("GradientCumulativeFp16OptimizerHook", "manual"): "does backward and step itself",
    # one iteration is too short for their schedules
    ("CosineAnnealingCooldownLrUpdaterHook", "fast"): "must be less than the run's length",
    ("YOLOXLrUpdaterHook", "fast"): "leave none of 1",
    ("CyclicMomentumUpdaterHook", "fast"): "more than the run has",
    ("ProfilerHook", "fast"): "the run has 1 iterations",
}
OTHERS = {("BestCheckpointHook", "two loaders"): {"save_best": "val_loss/dataloader_idx_1"}}
"""Arguments that a situation needs."""
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:The epoch-end checkpoint|Resume iterations|.*cumulative"),
    pytest.mark.filterwarnings("ignore:.*BatchNorm", "ignore:.*UpdaterHook of "),
    pytest.mark.filterwarnings("ignore:.*has nothing to compare|.*`fast_dev_run`|.*too few"),
]
hosted = pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])


@pytest.fixture(autouse=True)
def mlflow_begins_with_a_database(request: Any, tmp_path: Path) -> None:
    """As every tracking server does: making an empty one takes seconds each time."""
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
