"""Statements of the documentation about trackers and Lightning's loggers, tested with both.

A test's docstring is the sentence of the page, as in ``test_peers.py``.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from lightning.pytorch.loggers import WandbLogger

from support.logs.trackers import history, read_neptune, read_wandb
from support.training import NoValidation, make_loader, make_trainer


def test_start_of_a_client(tmp_path: Path) -> None:
    """Lightning's `WandbLogger` calls it on the thread that trains."""
    wandb = pytest.importorskip("wandb")
    logger, seen = WandbLogger(save_dir=tmp_path, offline=True), []

    def init(**given: Any) -> None:
        seen.append(threading.current_thread())
        raise ConnectionError

    with mock.patch.object(wandb, "init", init), pytest.raises(ConnectionError):
        make_trainer(None, logger=logger).fit(NoValidation(), make_loader(1))
    assert seen == [threading.main_thread()]


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_elsewhere")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_rows_of_earlier_steps(tmp_path: Path) -> None:
    """W&B itself drops rows up to its last step."""
    wandb = pytest.importorskip("wandb")
    with wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(silent=True)) as run:
        for step in (5, 3, 6):
            run.log({"a": step}, step=step)
    assert history(read_wandb(tmp_path)).keys() == {5, 6}


@pytest.mark.slow
def test_files_of_a_run_that_goes_on() -> None:
    """`wandb sync` brings both to one run."""
    pytest.importorskip("wandb")
    from click.testing import CliRunner
    from wandb.cli.cli import sync

    text = " ".join(CliRunner().invoke(sync, ["--help"]).output.split())
    assert "multiple files that are part of the same run" in text
    assert "--append" not in text  # which older ones need


def test_search_for_imports(tmp_path: Path) -> None:
    """Else the end of a ClearML task waits for a search for imports in all its Python files, but
    for `site-packages`.
    """
    pytest.importorskip("clearml")
    from clearml.backend_interface.task.repo.scriptinfo import ScriptRequirements
    from clearml.utilities.pigar import reqs

    for name in ("a.py", "deep/deeper/b.py", "env/site-packages/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import torch")
    searches = reqs.file_import_modules
    with (
        mock.patch.object(reqs, "get_installed_pkgs_detail", return_value={}),
        mock.patch.object(reqs, "file_import_modules", side_effect=searches) as searched,
    ):
        ScriptRequirements(str(tmp_path)).get_requirements()
    assert sorted(call.args[0] for call in searched.call_args_list) == ["a.py", "deep/deeper/b.py"]


def test_number_beside_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a number and a group of one name, such as `lr` and `lr/body`, the second gets a `_`, with
    a warning (DVCLive fails, or loses one of them).
    """
    dvclive = pytest.importorskip("dvclive")
    monkeypatch.chdir(tmp_path)
    live = dvclive.Live(save_dvc_exp=False, report=None)
    live.log_metric("lr", 0.1)
    with pytest.raises(AttributeError):
        live.log_metric("lr/body", 0.1)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore:.*will be skipped"
)
def test_number_beside_a_group_and_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN and infinities, which Neptune drops, are texts in the series `<name>_nonfinite`.

    Of a number and a group of one name, such as `lr` and `lr/body`, the second gets a `_`, with a
    warning (Neptune fails).
    """
    neptune = pytest.importorskip("neptune")
    monkeypatch.chdir(tmp_path)
    run = neptune.init_run(
        mode="offline",
        source_files=[],
        **dict.fromkeys(("capture_hardware_metrics", "capture_stdout", "capture_stderr"), False),
    )
    run["lr"].append(0.1)
    run["lr"].append(float("nan"))
    with pytest.raises(neptune.exceptions.MetadataInconsistency):
        run["lr/body"].append(0.1)
    run.stop()
    (values,) = [each for each in read_neptune(tmp_path) if each.get("path") == ["lr"]]
    assert [each["value"] for each in values["values"]] == [0.1]


def test_value_that_is_no_number() -> None:
    """NaN and infinities, which ClearML stores as 0.0, are a point of the series `nonfinite` and a
    line of the console log.
    """
    pytest.importorskip("clearml")
    from clearml.backend_interface.metrics.events import ScalarEvent

    assert ScalarEvent("a", "a", value=float("nan"), iter=0)._value == 0.0
    assert ScalarEvent("a", "a", value=float("inf"), iter=0)._value == 0.0


def test_characters_of_a_key() -> None:
    """MLflow does not take all characters."""
    pytest.importorskip("mlflow")
    from mlflow.exceptions import MlflowException
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name("val/AP_50")
    with pytest.raises(MlflowException, match="Invalid value"):
        _validate_metric_name("val/AP@50")
