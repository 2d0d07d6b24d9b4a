"""An evaluation prints mmcv's progress bar and writes numpy's numbers as mmcv does."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lightning_hooks import EMAHook
from support.standin import HAS_LITE, Idle, make, needs_lite


class Samples(Dataset[Any]):
    """A dataset of five samples with scores of numpy types, as in old projects."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.tensor([float(index)])}

    def evaluate(self, results: list[Any], logger: Any = None) -> dict[str, Any]:
        assert results == [0.0, 1.0, 2.0, 3.0, 4.0]
        return {
            "double": np.float64(0.123456789),
            "single": np.float32(0.123456789),
            "half": np.float16(0.1),
            "tiny": np.float32(1e-7),
            "count": np.int64(3),
        }


class Tells(Idle):
    """A model that returns the input."""

    def forward(self, x: torch.Tensor, return_loss: bool = True) -> list[float]:
        return x.flatten().tolist()


class Lines(logging.Handler):
    """Keeps the messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.mark.parametrize(
    ("kind", "head"),
    [("EpochBasedRunner", "Epoch(val) [1][3]"), ("IterBasedRunner", "Iter(val) [3]")],
)
def test_numpys_numbers_are_written_whole(
    kind: str, head: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The expected lines are real mmcv's, which treats only Python floats as floats."""
    from mmcv.runner import EvalHook

    logger, kept, by_epoch = logging.Logger("evaluation"), Lines(), kind == "EpochBasedRunner"
    logger.addHandler(kept)
    runner = make(kind, 1, tmp_path, Tells(), logger=logger, meta={})
    runner.timestamp = "now"
    text = {"type": "TextLoggerHook", "by_epoch": by_epoch}
    runner.register_logger_hooks({"interval": 1, "hooks": [text]})
    loader = DataLoader(Samples(), batch_size=2)
    runner.register_hook(
        EvalHook(loader, interval=1, by_epoch=by_epoch, save_best="single", rule="less")
    )
    runner.run([DataLoader([1.0])], [("train", 1)])  # type: ignore[arg-type]
    values = "single: 0.12345679104328156, half: 0.0999755859375, tiny: 1.0000000116860974e-07"
    assert f"{head}\tdouble: 0.1235, {values}, count: 3" in kept.lines
    row = (tmp_path / "now.log.json").read_text().splitlines()[-1]
    values = (
        '"single": 0.12345679104328156, "half": 0.0999755859375, "tiny": 1.0000000116860974e-07'
    )
    assert row.endswith(f'"double": 0.12346, {values}, "count": 3}}')
    saved = torch.load(next(tmp_path.glob("best_single_*.pth")), weights_only=True)
    assert saved["meta"]["hook_msgs"]["best_score"] == pytest.approx(0.123456789)
    assert ("] 5/5, " in capsys.readouterr().out) == HAS_LITE  # the evaluation's bar


@needs_lite
def test_a_progress_bar_counts_the_samples_of_a_test(capsys: pytest.CaptureFixture[str]) -> None:
    from mmcv.engine import multi_gpu_test, single_gpu_test

    for run in (single_gpu_test, multi_gpu_test):
        assert run(Tells(), DataLoader(Samples(), batch_size=2)) == [0.0, 1.0, 2.0, 3.0, 4.0]
        printed = capsys.readouterr().out.split("\r")
        assert printed[0] == f"[{' ' * 50}] 0/5, elapsed: 0s, ETA:"
        assert [text.partition("] ")[2].partition(",")[0] for text in printed[1:]] == [
            f"{done}/5" for done in (1, 2, 3, 4, 5)
        ]


@needs_lite
def test_the_progress_bar_of_an_iterable_dataset_counts(capsys: pytest.CaptureFixture[str]) -> None:
    from mmcv.engine import single_gpu_test

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([{"x": torch.ones(1)}] * 3)

    assert single_gpu_test(Tells(), DataLoader(Stream(), batch_size=2)) == [1.0] * 3
    assert "completed: 3, elapsed: 0s" in capsys.readouterr().out


def test_a_users_test_fn_is_kept(tmp_path: Path) -> None:
    from mmcv.runner import EvalHook

    def test(model: Any, loader: Any) -> list[float]:
        return [0.0, 1.0, 2.0, 3.0, 4.0]

    hook = EvalHook(DataLoader(Samples()), interval=1, test_fn=test)
    runner = make("EpochBasedRunner", 1, tmp_path, Tells())
    runner.register_hook(hook)
    runner.run([DataLoader([1.0])], [("train", 1)])  # type: ignore[arg-type]
    assert hook.test_fn is test


def test_an_average_of_this_package_is_evaluated_by_iteration_too(tmp_path: Path) -> None:
    from mmcv.runner import EvalHook

    evaluated: list[float] = []

    def test(model: Any, loader: Any) -> list[float]:
        evaluated.append(model.weight.item())
        return [0.0, 1.0, 2.0, 3.0, 4.0]

    average, model = EMAHook(momentum=0.5, warm_up=1), Tells()
    runner = make("IterBasedRunner", 2, tmp_path, model)
    runner.register_optimizer_hook({})
    runner.register_hook(average)
    data = DataLoader(Samples())
    runner.register_hook(EvalHook(data, interval=2, by_epoch=False, test_fn=test))
    runner.run([DataLoader([1.0])], [("train", 1)])  # type: ignore[arg-type]
    assert evaluated == [average.ema_state_dict()["weight"].item()] != [0.8]


@pytest.mark.parametrize("kind", ["EpochBasedRunner", "IterBasedRunner"])
def test_only_the_first_run_begins_with_an_evaluation(kind: str, tmp_path: Path) -> None:
    from mmcv.runner import EvalHook

    seen: list[int] = []

    def count(model: Any, loader: Any) -> list[float]:
        seen.append(runner.iter)
        return [0.0, 1.0, 2.0, 3.0, 4.0]

    runner = make(kind, 2, tmp_path)
    by_epoch = kind == "EpochBasedRunner"
    hook = EvalHook(DataLoader(Samples()), start=0, by_epoch=by_epoch, test_fn=count)
    runner.register_hook(hook)
    train: Any = [DataLoader([1.0])]  # type: ignore[arg-type]
    runner.run(train, [("train", 1)])
    assert seen == [0, 0 + by_epoch, 1 + by_epoch]
    setattr(runner, "_max_epochs" if by_epoch else "_max_iters", 4)
    runner.run(train, [("train", 1)])
    assert seen[3:] == [2 + by_epoch, 3 + by_epoch]
