"""What the documentation states about trackers and Lightning's loggers, beside them.

A test's docstring is the sentence of the page, as in ``test_peers.py``.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from lightning.pytorch.loggers import WandbLogger

from support.logs.trackers import history, read_wandb
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


def test_characters_of_a_key() -> None:
    """MLflow does not take all characters."""
    pytest.importorskip("mlflow")
    from mlflow.exceptions import MlflowException
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name("val/AP_50")
    with pytest.raises(MlflowException, match="Invalid value"):
        _validate_metric_name("val/AP@50")
