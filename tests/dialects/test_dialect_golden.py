"""Our dialects and the libraries run the same job (tests/golden/dialects.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import run_detectron2
import run_fvcore
import torch

from lightning_hooks import HookAdapter
from lightning_hooks.dialects import detectron2 as d2
from lightning_hooks.dialects import mmengine
from support.dialect_hooks.portable import StepTrace, Trace
from support.golden import assert_close, recorded
from support.training import TinyModule, make_loader, make_trainer

GOLDEN = recorded("dialects")["cases"]

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")


class Quiet(TinyModule):
    """A module that returns the loss and logs nothing in training."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)


class Own(Quiet):
    def __init__(self) -> None:
        super().__init__()
        self.sgd = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def configure_optimizers(self) -> Any:
        return self.sgd


def test_detectron2s_hooks_leave_the_same_rows(tmp_path: Path) -> None:
    class OwnTrace(StepTrace, d2.HookBase):
        pass

    expected = GOLDEN["portable detectron2"]
    module, trace, path = Own(), OwnTrace(), tmp_path / "metrics.json"
    hooks = [
        d2.IterationTimer(warmup_iter=3),
        trace,
        d2.LRScheduler(module.sgd, torch.optim.lr_scheduler.StepLR(module.sgd, 2, gamma=0.5)),
        d2.EvalHook(4, lambda: {"bbox": {"AP": 4.0}}),
        d2.PeriodicWriter([d2.JSONWriter(str(path), window_size=4)], period=2),
    ]
    make_trainer(tmp_path, HookAdapter(hooks), max_epochs=2).fit(module, make_loader(3))
    assert [list(call) for call in trace.calls] == expected["calls"]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert ["time" in row for row in rows] == expected["timed"]
    for row, other in zip(rows, expected["rows"], strict=True):
        # versions later than the recorded version also write the rank's time
        times = ("time", "data_time", "rank_data_time")
        kept = {key: value for key, value in row.items() if key not in times}
        assert kept == pytest.approx(other, rel=1e-6)
    torch.testing.assert_close(module.net.weight.detach(), torch.tensor(expected["weight"]))


@pytest.mark.parametrize("case", ["fvcore.HistoryBuffer", "fvcore.PeriodicCheckpointer"])
def test_classes_of_fvcore_are_bit_equal(case: str) -> None:
    found = json.loads(json.dumps(run_fvcore.with_ours(case, run_fvcore.CASES[case], "")))
    assert found == GOLDEN[case]


def test_precise_statistics_are_fvcores() -> None:
    case = "fvcore.update_bn_stats"
    found = run_fvcore.with_ours(case, run_fvcore.CASES[case], "")
    for layer, (mean, var, momentum) in GOLDEN[case].items():
        assert found[layer][0] == pytest.approx(mean, rel=1e-5, abs=1e-6)
        assert found[layer][1] == pytest.approx(var, rel=1e-5)
        assert found[layer][2] == momentum


WITHOUT_FVCORE = [case for case in run_detectron2.CASES if "schedules" not in case]


@pytest.mark.parametrize("case", WITHOUT_FVCORE)
def test_our_hooks_do_what_detectron2s_did(tmp_path: Path, case: str) -> None:
    found = run_detectron2.with_ours(case, run_detectron2.CASES[case], str(tmp_path))
    assert_close(json.loads(json.dumps(found)), GOLDEN[case])


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
def test_mmengines_points_and_message_hub(tmp_path: Path, by_epoch: bool) -> None:
    class OwnTrace(Trace, mmengine.Hook):
        def after_run(self, runner: Any) -> None:
            super().after_run(runner)
            self.hub = runner.message_hub

    trace, module = OwnTrace(), Quiet()
    expected = GOLDEN[f"portable mmengine, {'epochs' if by_epoch else 'iters'}"]
    length = {"max_epochs": 2} if by_epoch else {"max_steps": 4, "max_epochs": -1}
    trainer = make_trainer(tmp_path, HookAdapter([trace], by_epoch=by_epoch), **length)
    trainer.fit(module, make_loader(3), make_loader(2) if by_epoch else None)
    assert [list(call) for call in trace.calls] == expected["calls"]
    losses = trace.hub.get_scalar("train/loss")
    assert losses.data[0].tolist() == pytest.approx(expected["losses"], rel=1e-6)
    assert losses.mean(3) == pytest.approx(expected["mean"], rel=1e-6)
    assert trace.hub.get_scalar("train/lr").data[0].tolist() == expected["rates"]
    if by_epoch:
        found = trace.hub.get_scalar("val/val_loss").data[0].tolist()
        assert found == pytest.approx(expected["val"], rel=1e-6)
    torch.testing.assert_close(module.net.weight.detach(), torch.tensor(expected["weight"]))
