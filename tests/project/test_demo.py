"""The demo reaches its accuracy, writes the documented files, and resumes bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import curves
import pytest
import torch

pytest.importorskip("sklearn")
import demo

from lightning_hooks.utils.concatenated import separated

TIMES = ("time", "data_time")


def same(a: Any, b: Any) -> bool:
    """Whether two nested values are equal to the last bit."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def differing(a: Any, b: Any, path: str = "") -> list[str]:
    """Return where two nested values differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = list(dict.fromkeys([*a, *b]))
        return [
            found
            for key in keys
            for found in (
                differing(a[key], b[key], f"{path}/{key}")
                if key in a and key in b
                else [f"{path}/{key} is missing"]
            )
        ]
    return [] if same(a, b) else [path]


def load(path: Path) -> dict[str, Any]:
    """Load a checkpoint without paths and times, which differ between runs."""
    checkpoint: dict[str, Any] = torch.load(path, weights_only=True)
    for name in ("hook_msgs", "time"):
        checkpoint["meta"].pop(name, None)
    for state in checkpoint["callbacks"].values():
        state.pop("files", None)
    own_part = checkpoint["lightning_hooks"]
    del own_part["text_logs"]  # the sizes and checksums depend on times
    metrics = separated(own_part["metrics"][0][0])
    own_part["metrics"] = {k: v for k, v in metrics.items() if k not in TIMES}
    return checkpoint


def rows(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in curves.read_log(folder)]


def run(out: Path, **kwargs: Any) -> Any:
    """Run the demo without a progress bar and, unless given, without trackers."""
    return demo.train(out, **{"trackers": (), "enable_progress_bar": False, **kwargs})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted")
    run(out)
    return out


def test_the_demo_learns_and_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.main(["--out", str(tmp_path), "--no-trackers"])
    log = curves.read_log(tmp_path)
    (last,) = [row for row in log if row["mode"] == "val" and row["epoch"] == 5]
    assert last["accuracy"] > 0.97
    assert [p.name for p in sorted(tmp_path.glob("epoch_*"))] == [
        "epoch_3.pth",
        "epoch_4.pth",
        "epoch_5.pth",
    ]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    told = capsys.readouterr().out
    assert f"accuracy {last['accuracy']:.4f}" in told
    for name in ("curves.png", "epoch_3.pth", "epoch_4.pth", "epoch_5.pth", ".log.json"):
        assert name in told
    # the log has the old hook's values next to the native hooks' values
    train = [row for row in log if row["mode"] == "train"]
    assert len(train) == 5 * 45 // 9
    assert all({"lr", "loss", "accuracy", "weight_norm", "time"} <= row.keys() for row in train)


@pytest.mark.parametrize("epoch", [3, 4, 5])
def test_resuming_equals_not_stopping_bit_for_bit(
    uninterrupted: Path, tmp_path: Path, epoch: int
) -> None:
    start = shutil.copy(uninterrupted / f"epoch_{epoch}.pth", tmp_path / "start.pth")
    run(tmp_path, resume=start)
    for later in range(epoch + 1, 6):
        name = f"epoch_{later}.pth"
        assert differing(load(uninterrupted / name), load(tmp_path / name)) == []
    wanted = [row for row in rows(uninterrupted) if row["epoch"] > epoch]
    assert (rows(tmp_path) if wanted else []) == wanted


def test_the_checkpoints_hold_weights_average_and_optimizer(uninterrupted: Path) -> None:
    checkpoint = load(uninterrupted / "epoch_3.pth")
    average, weights = checkpoint["state_dict"], checkpoint["current_model_state"]
    assert average.keys() == weights.keys()
    assert not torch.equal(weights["net.0.weight"], average["net.0.weight"])
    assert not torch.equal(weights["net.1.running_mean"], average["net.1.running_mean"])
    assert checkpoint["optimizer_states"][0]["state"]


def test_the_figure_of_a_resumed_run_shows_the_whole_run(
    uninterrupted: Path, tmp_path: Path
) -> None:
    shutil.copytree(uninterrupted, tmp_path, dirs_exist_ok=True)
    (log,) = tmp_path.glob("*.log.json")
    log.rename(tmp_path / "20000101_000000.log.json")
    run(tmp_path, resume=tmp_path / "epoch_4.pth")
    assert len(list(tmp_path.glob("*.log.json"))) == 2
    assert {row["epoch"] for row in curves.read_log(tmp_path)} == {5}
    whole = curves.read_log(tmp_path, earlier=True)
    assert [row["epoch"] for row in whole if row["mode"] == "val"] == [1, 2, 3, 4, 5]
    assert len(whole) == len(rows(uninterrupted))


def test_trackers_record_the_demo_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("neptune")
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "out", epochs=1, limit_train_batches=9, trackers=demo.TRACKERS)
    places = demo.where(tmp_path / "out")
    assert {"W&B, offline", "MLflow", "Neptune, offline"} <= places.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # and nothing anywhere else


def test_the_old_hook_file_knows_nothing_of_us() -> None:
    source = (Path(demo.__file__).parent / "old_hooks.py").read_text(encoding="utf-8")
    assert "import" not in source
