"""``lightning-hooks plot RUN``: plots of the logs of finished runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import CheckpointHook, StepLrUpdaterHook, TextLoggerHook
from lightning_hooks.cli import main, plot_runs
from lightning_hooks.cli.plot_runs import read_run
from support.training import TinyModule, fit, make_loader

for package in ("matplotlib", "plotext", "rich", "shtab"):
    pytest.importorskip(package)


def run(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(map(str, arguments)))
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def row(mode: str, epoch: int, number: int, **values: Any) -> str:
    return json.dumps({"mode": mode, "epoch": epoch, "iter": number, **values})


def written(folder: Path, *lines: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "20261123_120000.log.json").write_text("\n".join(lines))
    return folder


BY_EPOCH = [
    '{"seed": 0}',
    row("train", 1, 2, lr=0.1, loss=1.0, time=0.3),
    row("train", 1, 4, lr=0.1, loss=0.8, time=0.3),
    row("val", 1, 3, lr=0.1, acc=0.5),
    row("train", 2, 2, lr=0.01, loss=0.6, time=0.3),
    row("train", 2, 4, lr=0.01, loss=0.5, time=0.3),
    row("val", 2, 3, lr=0.01, acc=0.75),
]
BY_ITERATION = [
    row("train", 1, 4, lr={"gen": 0.1, "disc": [0.2]}, loss=2.0),
    row("train", 2, 8, lr={"gen": 0.1, "disc": [0.2]}, loss=1.0),
]


def test_a_real_run_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    hooks = [StepLrUpdaterHook(step=[1]), TextLoggerHook(interval=1)]
    fit(tmp_path, *hooks, work_dir="run", max_epochs=2, val=1)
    capsys.readouterr()
    assert run("plot", "run", "--keys", "loss") == 0
    shown = capsys.readouterr().out
    assert "loss" in shown
    assert " lr " not in shown
    assert "drawn in curves.png" in shown
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")


def test_rows_of_an_epoch_lie_within_it_and_validations_at_its_end(tmp_path: Path) -> None:
    log = read_run(written(tmp_path / "a", *BY_EPOCH))
    lines = log.series(in_epochs=True)
    assert lines["loss", "train"].at == [0.5, 1.0, 1.5, 2.0]
    assert lines["acc", "val"] == ([1.0, 2.0], [0.5, 0.75])
    assert {key for key, _ in lines} == {"lr", "loss", "acc"}  # no times
    assert log.series(in_epochs=False)["acc", "val"].at == [4.0, 8.0]


def test_validations_within_epochs_lie_within_them(tmp_path: Path) -> None:
    class Trained(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            self.log("mean", loss, on_step=False, on_epoch=True)
            return loss

        test_step = TinyModule.validation_step

    run = {"batches": 8, "val": 3, "max_epochs": 2, "val_check_interval": 4}
    trainer = fit(tmp_path, TextLoggerHook(interval=3), module=Trained, **run)
    module = trainer.lightning_module
    trainer.validate(module, make_loader(5), verbose=False)
    trainer.test(module, make_loader(2), verbose=False)
    log = read_run(tmp_path)
    assert log.damaged == 0
    lines = log.series(in_epochs=True)
    assert lines["loss", "train"].at == [3 / 8, 6 / 8, 11 / 8, 14 / 8]
    assert lines["mean", "train_epoch"].at == [1.0, 2.0]
    assert lines["val_loss", "val"].at == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert lines["val_loss", "test"].at == [2.0]


def test_epochs_of_other_lengths_lie_at_their_own_places(tmp_path: Path) -> None:
    class Trained(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            self.log("mean", loss, on_step=False, on_epoch=True)
            return loss

    hooks = TextLoggerHook(interval=2), CheckpointHook(interval=1)
    run = {"module": Trained, "val": 1, "val_check_interval": 0.5}
    fit(tmp_path, *hooks, batches=8, max_epochs=1, **run)
    fit(tmp_path, *hooks, batches=4, max_epochs=3, ckpt_path="last", **run)
    log = read_run(tmp_path)
    lines = log.series(in_epochs=True)
    assert lines["mean", "train_epoch"].at == [1.0, 2.0, 3.0]
    assert lines["val_loss", "val"].at == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert lines["loss", "train"].at == [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert log.series(in_epochs=False)["mean", "train_epoch"].at == [8.0, 12.0, 16.0]


def test_the_only_validation_of_an_epoch_may_lie_within_it(tmp_path: Path) -> None:
    run = {"batches": 4, "val": 1, "max_epochs": 2, "val_check_interval": 3}
    fit(tmp_path, TextLoggerHook(interval=2), **run)
    lines = read_run(tmp_path).series(in_epochs=True)
    assert lines["val_loss", "val"].at == [0.75, 1.75]


def test_a_run_by_iteration_counts_in_these(tmp_path: Path) -> None:
    log = read_run(written(tmp_path / "b", *BY_ITERATION))
    lines = log.series(in_epochs=True)
    assert lines["loss", "train"] == ([4.0, 8.0], [2.0, 1.0])
    assert lines["lr.disc", "train"].values == [0.2, 0.2]


def test_runs_share_one_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a_name_that_is_" + 2 * "much_longer_than_a_panel_of_eighty_columns_"
    one = written(tmp_path / "one" / name, *BY_EPOCH)
    two = written(tmp_path / "two" / name, *BY_ITERATION)
    assert run("plot", one, two, "--out", tmp_path / "both.svg") == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[:2] == [f"1: one/{name}", f"2: two/{name}"]
    assert "1 train" in shown
    assert "2 train" in shown
    assert "iteration" in shown
    assert "svg" in (tmp_path / "both.svg").read_text()


def test_a_picture_without_an_ending_is_a_png(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path / "one", *BY_EPOCH)
    assert run("plot", one, "--out", tmp_path / "both") == 0
    assert f"drawn in {tmp_path / 'both.png'}" in capsys.readouterr().out
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("empty", (), "has no .log.json: TextLoggerHook writes one"),
        ("meta", ('{"seed": 0}',), "has no row of a log"),
        ("odd", ("[[[", "\0", '{"mode": "train", "epoch": "1", "iter": 1}'), "has no row"),
        ("times", (row("train", 1, 1, time=1.0, note="x"),), "and no numbers at all"),
    ],
)
def test_a_run_without_a_curve_is_reported_in_one_line(
    name: str,
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = written(tmp_path / name, *arguments)
    if name == "empty":
        next(folder.iterdir()).unlink()
    assert run("plot", folder) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1


def test_damaged_lines_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = row("train", 2, 3, loss=10**400, acc=float("nan"))
    folder = written(tmp_path / "a", *BY_EPOCH, '{"mode": "tr', "[" * 100_000, huge)
    log = read_run(folder)
    assert log.damaged == 2
    assert len(log.rows) == len(BY_EPOCH)
    assert run("plot", folder, "--out", tmp_path / "a.png") == 0
    assert "2 damaged lines" in capsys.readouterr().err


def test_an_evaluation_after_the_fit_does_not_hide_its_curves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "a", *BY_EPOCH)
    tested = row("test", 2, 3, acc=0.7)
    (folder / "20261124_120000.log.json").write_text(tested)  # by a script of its own
    (folder / "20261125_120000.log.json").write_text(row("val", 2, 3, acc=0.75))
    assert run("plot", folder, "--keys", "loss", "--out", tmp_path / "a.png") == 0
    assert "loss" in capsys.readouterr().out

    (folder / "20261123_120000.log.json").unlink()
    assert read_run(folder).path.name == "20261125_120000.log.json"
    (folder / "20261126_120000.log.json").write_text("")  # of a run that has just begun
    assert run("plot", folder) == 2
    assert "20261126_120000.log.json has no row" in capsys.readouterr().err


def test_a_missing_log_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plot", tmp_path / "no.log.json") == 2
    assert "there is no file or folder" in capsys.readouterr().err


def test_of_many_quantities_those_that_changed_most_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plot_runs, "MOST_PANELS", 2)
    values = [[1.0, 1.0], [200.0, 100.0], [0.0, -3.0], [5.0, 4.9], [float("nan"), 7.0]]
    rows = [
        row("train", epoch, 1, **{f"m{i}": both[epoch - 1] for i, both in enumerate(values)})
        for epoch in (1, 2)
    ]
    folder = written(tmp_path / "run", *rows)
    assert run("plot", folder) == 0
    shown = capsys.readouterr().out
    assert [name for name in ("m0", "m1", "m2", "m3", "m4") if f" {name} " in shown] == ["m1", "m2"]
    assert "the 2 of 5 quantities that changed most; `--all` draws the rest" in shown
    assert run("plot", folder, "--all") == 0
    shown = capsys.readouterr().out
    assert all(f" m{i} " in shown for i in range(5))
    assert "changed most" not in shown
    assert "drawn in curves.png, curves_2.png, curves_3.png" in shown
    assert len([*tmp_path.glob("curves*.png")]) == 3


def test_a_picture_of_very_many_quantities_has_names_and_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot_runs, "MOST_PANELS", 3)
    names = "same", "m$1", "nothing", "rises"
    values = (1.0, 1.0), (200.0, 100.0), (float("nan"), 10**400), (-2.5, 4)
    rows = [
        row(
            mode,
            epoch,
            1,
            **{name: both[epoch - 1] for name, both in zip(names, values, strict=True)},
        )
        for epoch in (1, 2)
        for mode in ("train", "val")
    ]
    runs = [read_run(written(tmp_path / name, *rows)) for name in ("first", "second")]
    with pytest.importorskip("matplotlib").rc_context({"svg.fonttype": "none"}):
        pictures = plot_runs.draw_runs(runs, tmp_path / "all.svg")
    first, second = (path.read_text() for path in pictures)
    for text in ("same: 1 to 1", "m$1: 100 to 200", "nothing: nan to nan", "2 val", "2: second"):
        assert f">{text}<" in first
    assert ">rises: -2.5 to 4<" in second
    assert ">epochs 1 to 2<" in second


def test_all_is_for_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plot", "config.py", "--all") == 2
    assert "--keys is for runs, as is --all" in capsys.readouterr().err


def test_an_unknown_quantity_is_refused_with_the_known_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "a", *BY_EPOCH)
    assert run("plot", folder, "--keys", "mAP") == 2
    assert "the logs have no mAP; known: acc, loss, lr" in capsys.readouterr().err


def test_a_config_and_a_run_are_not_drawn_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "a", *BY_EPOCH)
    assert run("plot", folder, "config.py") == 2
    assert "plot draws one config, or runs" in capsys.readouterr().err


def test_a_plotext_of_other_functions_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr("plotext.clear_figure")  # as in plotext 6
    monkeypatch.chdir(tmp_path)
    assert run("plot", written(tmp_path / "run", *BY_EPOCH)) == 2
    assert "pip install 'plotext<6'" in capsys.readouterr().err
