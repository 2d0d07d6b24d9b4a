"""The learning rate policies of mmdetection and mmflow, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import MultiStageLrUpdaterHook, YOLOXLrUpdaterHook, hooks_from_config
from support.schedule_runs import case_of, fit

YOLOX: dict[str, Any] = {
    "type": "YOLOXLrUpdaterHook",
    "num_last_epochs": 1,
    "min_lr_ratio": 0.1,
    "warmup": "exp",
    "warmup_ratio": 1.0,
}
# 15 iterations in epochs of 5: the cosine goes from 1 to 0.1 in 5, without the first point
COSINE = [0.914058, 0.689058, 0.410942, 0.185942]


@pytest.mark.parametrize(
    "length", [{"warmup_iters": 5}, {"warmup_iters": 1, "warmup_by_epoch": True}]
)
@pytest.mark.parametrize("runner", ["EpochBasedRunner", "IterBasedRunner"])
def test_yolox_in_a_run(tmp_path: Path, length: dict[str, Any], runner: str) -> None:
    case = case_of(**YOLOX, **length)
    case.update(runner=runner, max_epochs=3, max_iters=15)
    case["optimizers"][0]["lr"] = [1.0, 2.0]
    expected = [0.04, 0.16, 0.36, 0.64, 1.0, *COSINE, *[0.1] * 6]
    found = fit(tmp_path, case)
    assert [one for one, _ in found] == pytest.approx(expected, abs=5e-7)
    assert [two for _, two in found] == pytest.approx([2 * lr for lr in expected], abs=1e-6)


def test_yolox_without_warm_up_and_with_several_optimizers(tmp_path: Path) -> None:
    case = case_of(type="YOLOXLrUpdaterHook", num_last_epochs=1, min_lr=0.1)
    case["optimizers"] = [{"name": "a", "lr": [1.0]}, {"name": "b", "lr": [0.1]}]
    assert [one for one, _ in fit(tmp_path, case)] == pytest.approx([*COSINE, *[0.1] * 6], abs=5e-7)


def test_yoloxs_own_config_is_understood() -> None:
    adapter = hooks_from_config(
        {
            "lr_config": {
                "policy": "YOLOX",
                "warmup": "exp",
                "by_epoch": False,
                "warmup_by_epoch": True,
                "warmup_ratio": 1,
                "warmup_iters": 5,
                "num_last_epochs": 15,
                "min_lr_ratio": 0.05,
            }
        }
    )
    assert type(adapter.hooks[0]) is YOLOXLrUpdaterHook


def test_departure_yolox_counts_iterations_only() -> None:
    with pytest.raises(ValueError, match="by_epoch must be False"):
        YOLOXLrUpdaterHook(1, min_lr=0.0, by_epoch=True)


def test_departure_yolox_without_room_for_the_cosine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"SGD \(group 0\): a warm-up of 5 and last epochs of 5"):
        fit(tmp_path, case_of(**YOLOX, warmup_iters=5))


def test_stages_in_a_run(tmp_path: Path) -> None:
    case = case_of(
        type="MultiStageLrUpdaterHook",
        milestone_lrs=[0.4, 0.2],
        milestone_iters=[0, 6],
        steps=[[2, 4], [7, 9]],
        gammas=[0.5, 0.1],
        by_epoch=False,
    )
    expected = [0.4, 0.4, 0.2, 0.2, 0.1, 0.1, 0.2, 0.02, 0.02, 0.002]
    assert [lr for [lr] in fit(tmp_path, case)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"gammas": [1]}, ValueError, "every stage must have one value in each list"),
        ({"milestone_iters": [4, 4]}, ValueError, r"milestone_iters must rise, got \[4, 4\]"),
        ({"milestone_iters": [0, 4.0]}, TypeError, "milestone_iters must be ints"),
        ({"steps": [[1], [0]]}, ValueError, r"steps\[1\] must be positive"),
        ({"steps": [[1], "2"]}, TypeError, r"steps\[1\] must be an int or a list of ints"),
    ],
)
def test_bad_stages_are_refused(given: Any, error: type[Exception], message: str) -> None:
    good = {
        "milestone_lrs": [0.1, 0.2],
        "milestone_iters": [0, 4],
        "steps": [1, 2],
        "gammas": [1, 1],
    }
    with pytest.raises(error, match=message):
        MultiStageLrUpdaterHook(**{**good, **given})


@pytest.mark.parametrize(
    ("epochs", "error"), [(1.5, TypeError), (True, TypeError), (-1, ValueError)]
)
def test_bad_last_epochs_are_refused(epochs: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="num_last_epochs must"):
        YOLOXLrUpdaterHook(epochs, min_lr=0.0)
