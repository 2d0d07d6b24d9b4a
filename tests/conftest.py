"""Settings of the whole test run."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

# set before the clients are imported: tests use no server, no account and no telemetry
os.environ.update(
    WANDB_MODE="offline",
    WANDB_SILENT="true",
    MLFLOW_DISABLE_TELEMETRY="true",
    NEPTUNE_MODE="offline",
    DVC_NO_ANALYTICS="1",
    JSONARGPARSE_DEPRECATION_WARNINGS="off",  # of LightningCLI before 2.5.3
    MPLBACKEND="Agg",
)
# one thread, as in the golden recordings; several threads would also wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")
# equal results on every machine; GPU tests run with CUDA_VISIBLE_DEVICES=0
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

# failing assertions in support are shown in detail, as in tests
if "support" not in sys.modules:  # make torture imports support first
    pytest.register_assert_rewrite("support")

# sets the fork server's imports before a test starts a process
importlib.import_module("support.forks")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of features that the installed Lightning lacks."""
    from support.lightning_releases import what_it_lacks

    for item in items:
        if lacking := what_it_lacks(item.nodeid):
            item.add_marker(pytest.mark.skip(reason=f"this Lightning has no {lacking}"))


@pytest.fixture(autouse=True, scope="session")
def _one_search_for_entry_points() -> Iterator[None]:
    """Search for entry points of callbacks once instead of for each Trainer.

    The search reads a file of every installed package, a quarter of the time of a short fit.
    """
    registry = importlib.import_module("lightning.fabric.utilities.registry")
    search = registry.entry_points

    @functools.cache
    def search_once(path: tuple[str, ...], group: str) -> Any:
        return search(group=group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", lambda group: search_once((*sys.path,), group))
        yield


@pytest.fixture(scope="module")
def forked_checks() -> Iterator[None]:
    """Fork the process of a check, because a new interpreter takes seconds to import torch."""
    from lightning_hooks.cli.check import report
    from support.processes import Forks

    def run(command: list[str], *, stdout: Any, env: dict[str, str], **streams: Any) -> None:
        printed = Forks(command[1:], [env], Path.cwd()).wait(check=False)
        stdout.write(printed.encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "subprocess", SimpleNamespace(**{**vars(subprocess), "run": run}))
        yield


@pytest.fixture(autouse=True)
def _alone_again() -> Iterator[None]:
    """Remove Lightning's environment variables and the clients' global state after each test."""
    yield
    ranks = ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "WORLD_SIZE")
    for name in (*ranks, "PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        os.environ.pop(name, None)
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None:  # Lightning's MLFlowLogger sets the URI for the whole process
        mlflow.set_tracking_uri(None)
    wandb = sys.modules.get("wandb")
    if getattr(wandb, "run", None) is not None:  # an offline run continues after the fit
        wandb.finish()


@pytest.fixture
def nothing_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the user's settings and keys from clients, and keep files of clients in ``tmp_path``."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    for name in ("WANDB_API_KEY", "WANDB_DIR", "MLFLOW_TRACKING_URI", "NEPTUNE_DATA_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("CLEARML_CONFIG_FILE", str(tmp_path / "clearml.conf"))
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb_home"))
    _quicken_clearml(monkeypatch)


@pytest.fixture(autouse=True)
def _quick_clearml(monkeypatch: pytest.MonkeyPatch) -> None:
    if "clearml" in sys.modules:
        _quicken_clearml(monkeypatch)


def _quicken_clearml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the end of a ClearML task, which waits for its reporter and a package search."""
    try:
        with warnings.catch_warnings():  # warnings of ClearML's imports
            warnings.simplefilter("ignore")
            from clearml import Task
            from clearml.backend_interface.metrics.reporter import BackgroundReportService
    except ImportError:
        return
    begin = BackgroundReportService.__init__

    def begin_quicker(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **{**kwargs, "flush_frequency": 0.1})

    monkeypatch.setattr(BackgroundReportService, "__init__", begin_quicker)
    # otherwise ClearML reads every Python file of the repository and of nested environments
    monkeypatch.setattr(Task, "_force_use_pip_freeze", os.devnull)


@pytest.fixture(scope="session")
def empty_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database to copy, because creating a database takes seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    with warnings.catch_warnings():  # of MLflow about SQLAlchemy; none of ours
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def work(tmp_path: Path, empty_db: Path) -> Path:
    """A work dir with an empty MLflow database."""
    (tmp_path / "work").mkdir()
    shutil.copy(empty_db, tmp_path / "work" / "mlflow.db")
    return tmp_path / "work"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip tests without an installed package, and resumes that the installed Lightning cannot do.

    The wheel is also tested without extras. Only a failing import in a test, or the message of a
    hook or the command, skips the test; any other failing import is an error.
    """
    report = yield
    if call.excinfo is None:
        return report
    error = call.excinfo.value
    if "goes on with other batches and counts: resume from a file of" in str(error):
        reason = "Skipped: this Lightning resumes exactly at an epoch's end alone"
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, reason)
        return report
    by_the_command = re.search(r"lightning-hooks needs (\w+): pip install", str(error))
    name = by_the_command[1] if by_the_command else getattr(error, "name", None)
    if name is not None and (by_the_command or isinstance(error, ImportError)):
        missing = importlib.util.find_spec(name.partition(".")[0]) is None
        by_a_test = Path(call.excinfo.traceback[-1].path).is_relative_to(Path(__file__).parent)
        of_command = name == "shtab"  # the command imports shtab before any function of a test
        if missing and (by_a_test or of_command or ": pip install" in str(error)):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {error}")
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the number of inputs tried in property tests."""
    tried = getattr(sys.modules.get("support.torture.bad_input"), "tried", {})
    for what, number in sorted(tried.items()):
        terminalreporter.write_line(f"inputs tried: {number} {what}")
