"""The calls of hooks equal mmcv's calls in golden/traces.json one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import Hook, HookAdapter
from lightning_hooks.engine.points import GENERIC, STAGES
from support.golden import recorded
from support.training import TinyModule, make_loader, make_trainer

GOLDEN = recorded("traces")["cases"]


class Trace(Hook):
    """Records the same values as the recorder for mmcv."""

    def __init__(self) -> None:
        self.points: list[Any] = []
        self.generic: list[Any] = []

    @staticmethod
    def row(point: str, runner: Any) -> list[Any]:
        return [
            point,
            runner.epoch,
            runner.iter,
            runner.inner_iter,
            runner.mode,
            runner.max_epochs,
            runner.max_iters,
        ]


def _specific(point: str) -> Any:
    def note(self: Trace, runner: Any) -> None:
        self.points.append(self.row(point, runner))
        getattr(Hook, point)(self, runner)  # on to the generic method

    return note


def _generic(point: str) -> Any:
    def note(self: Trace, runner: Any) -> None:
        self.generic.append(self.row(point, runner))

    return note


for _point in STAGES:
    setattr(Trace, _point, _specific(_point))
for _point in set(GENERIC.values()):
    setattr(Trace, _point, _generic(_point))


def assert_golden(trace: Trace, case: str) -> None:
    want = GOLDEN[case]
    assert trace.points == want["points"]
    assert trace.generic == want["generic"]


@pytest.mark.parametrize("sanity", [0, 2], ids=["", "sanity-checked"])
@pytest.mark.parametrize("hosted", [False, True], ids=["direct", "hosted"])
@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("epoch_train", {"max_epochs": 3}),
        ("epoch_train_val", {"max_epochs": 3}),
        ("epoch_val_every_2", {"max_epochs": 4, "check_val_every_n_epoch": 2}),
    ],
)
def test_epoch_based(
    case: str, options: dict[str, Any], hosted: bool, sanity: int, tmp_path: Path
) -> None:
    trace = Trace()
    callback = HookAdapter([trace]) if hosted else trace
    trainer = make_trainer(tmp_path, callback, num_sanity_val_steps=sanity, **options)
    val = make_loader(2) if len(GOLDEN[case]["loaders"]) > 1 else None
    trainer.fit(_module(val), make_loader(4), val)
    assert_golden(trace, case)


@pytest.mark.parametrize("sanity", [0, 2], ids=["", "sanity-checked"])
@pytest.mark.parametrize("hosted", [False, True], ids=["direct", "hosted"])
def test_resumed_from_an_epoch_end(hosted: bool, sanity: int, tmp_path: Path) -> None:
    class Save(Hook):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.save_checkpoint(tmp_path / f"epoch_{trainer.current_epoch + 1}.ckpt")

    first = make_trainer(tmp_path, Save(), max_epochs=2, num_sanity_val_steps=sanity)
    first.fit(TinyModule(), make_loader(4), make_loader(2))
    trace = Trace()
    callback = HookAdapter([trace]) if hosted else trace
    again = make_trainer(tmp_path, callback, max_epochs=4, num_sanity_val_steps=sanity)
    again.fit(TinyModule(), make_loader(4), make_loader(2), ckpt_path=tmp_path / "epoch_2.ckpt")
    assert_golden(trace, "epoch_resumed")


def test_after_the_last_odd_epoch_mmcv_validates_and_lightning_does_not(tmp_path: Path) -> None:
    trace = Trace()
    trainer = make_trainer(tmp_path, trace, max_epochs=3, check_val_every_n_epoch=2)
    trainer.fit(TinyModule(), make_loader(4), make_loader(2))
    want = GOLDEN["epoch_val_every_2_odd"]["points"]
    extra = ("before_val_epoch", "before_val_iter", "after_val_iter", "after_val_epoch")
    common = len(trace.points) - 1
    assert trace.points[:common] == want[:common]
    assert all(row[0] in extra for row in want[common:-1])
    assert trace.points[-1][0] == want[-1][0] == "after_run"


@pytest.mark.parametrize("sanity", [0, 2], ids=["", "sanity-checked"])
@pytest.mark.parametrize(
    ("case", "options", "val"),
    [
        ("iter_train", {"max_steps": 10}, 0),
        ("iter_train_val", {"max_steps": 12, "val_check_interval": 4}, 2),
        (
            "iter_train_val",
            {"max_steps": 12, "val_check_interval": 4, "check_val_every_n_epoch": None},
            2,
        ),
    ],
)
def test_iteration_based(
    case: str, options: dict[str, Any], val: int, sanity: int, tmp_path: Path
) -> None:
    trace = Trace()
    adapter = HookAdapter([trace], by_epoch=False)
    trainer = make_trainer(tmp_path, adapter, num_sanity_val_steps=sanity, **options)
    loader = make_loader(val) if val else None
    trainer.fit(_module(loader), make_loader(4), loader)
    assert_golden(trace, case)


def test_three_callbacks_share_one_order_and_one_state(tmp_path: Path) -> None:
    """All callbacks finish a point, in order of priority, before the next point begins."""
    rows: list[tuple[str, list[Any]]] = []

    class Shared(Trace):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.points = _Tee(name, rows)

    class Late(Shared):
        priority = "VERY_LOW"

    class Early(Shared):
        priority = "VERY_HIGH"

    hooks = [Late("3rd"), HookAdapter([(Shared("2nd"), "NORMAL")]), Early("1st")]
    trainer = make_trainer(tmp_path, *hooks, max_epochs=3)
    trainer.fit(TinyModule(), make_loader(4), make_loader(2))
    want = GOLDEN["epoch_train_val"]["points"]
    assert rows == [(name, row) for row in want for name in ("1st", "2nd", "3rd")]


class _Tee(list[Any]):
    def __init__(self, name: str, rows: list[tuple[str, list[Any]]]) -> None:
        super().__init__()
        self.name, self.rows = name, rows

    def append(self, row: list[Any]) -> None:
        self.rows.append((self.name, row))


class _NoValidation(TinyModule):
    validation_step = None  # type: ignore[assignment]


def _module(val: Any) -> TinyModule:
    return TinyModule() if val is not None else _NoValidation()
