"""The common arguments of clients are keywords of the hooks, beside ``init_kwargs``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lightning_hooks
from support.logs.trackers import client_of, fit, run_of

KEYWORDS: dict[str, dict[str, Any]] = {
    "WandbLoggerHook": {
        **dict.fromkeys(("project", "name", "entity", "group", "notes", "mode"), "x"),
        "tags": ["baseline"],
    },
    "NeptuneLoggerHook": {"project": "x", "name": "x", "mode": "offline", "tags": ["baseline"]},
    "ClearMLLoggerHook": {"project_name": "x", "task_name": "x", "tags": ["baseline"]},
    "VisdomLoggerHook": {"server": "http://localhost", "port": 8097, "env": "main"},
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_keywords_are_arguments_of_the_client(name: str) -> None:
    pytest.importorskip(name.removesuffix("LoggerHook").lower())
    make, given = getattr(lightning_hooks, name), KEYWORDS[name]
    assert make(**given).init_kwargs == given
    assert make({"extra": 1}, **given).init_kwargs == {"extra": 1, **given}
    for key, value in given.items():
        with pytest.raises(ValueError, match=f"{key} is given twice: .* write one of them"):
            make({key: value}, **{key: value})
        with pytest.raises(TypeError, match=f"{key} must be an? "):
            make(**{key: 0.5})
        if key == "tags":
            for wrong in ("baseline", int, [1], (tag for tag in ["baseline"])):
                with pytest.raises(TypeError, match="tags must be a list of str"):
                    make(tags=wrong)


@pytest.mark.usefixtures("nothing_elsewhere")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_mlflow_takes_its_store_and_the_run_s_name(work: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    (work / "mlflow.db").rename(tmp_path / "other.db")
    hook = lightning_hooks.MlflowLoggerHook(
        tracking_uri=f"sqlite:///{tmp_path}/other.db", run_name="first", log_model=False
    )
    fit(work, hook, epochs=1)
    assert run_of(client_of(tmp_path / "other.db")).info.run_name == "first"
    assert not (work / "mlflow.db").exists()
    with pytest.raises(TypeError, match="tracking_uri must be a str or None, got 5"):
        lightning_hooks.MlflowLoggerHook(tracking_uri=5)
