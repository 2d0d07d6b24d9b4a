"""Arguments of the text log and the trackers, for the contract."""

from __future__ import annotations

from typing import Any

from lightning_hooks._exports import HOMES
from support.contract.case import Case

__all__ = ["CASES", "CONNECTED"]

CASES: dict[str, Case] = {
    **{
        name: ({"interval": 2}, {"interval": -1})
        for name, home in HOMES.items()
        if home.startswith("lightning_hooks.loggers.trackers.")
    },
    "DvcliveLoggerHook": ({"interval": 2}, {"model_file": 3}),
    "LightningLoggerHook": (
        {"interval": 2, "logger": {"type": "CSVLogger"}},
        {"logger": {"type": "CVSLogger"}},
    ),
    "MlflowLoggerHook": ({"interval": 2, "log_model": False}, {"interval": -1}),
    "TensorboardLoggerHook": ({"interval": 2}, {"log_dir": 3}),
    "TextLoggerHook": ({"interval": 2}, {"interval": -1}),
    "VisdomLoggerHook": ({"interval": 2}, {"timeout": -1.0}),
}

CONNECTED: dict[str, dict[str, Any]] = {
    "clearml": {"init": {"project_name": "digits", "task_name": "first"}, "folder": "/w/clearml"},
    "lightning": {"loggers": [{"type": "CSVLogger", "save_dir": "/w", "version": 0}]},
    "mlflow": {"uri": "http://host", "experiment": "digits", "label": "1f", "tags": {}},
    "neptune": {"init": {"project": "me/x", "mode": "sync"}, "folder": "/w", "custom_run_id": "1f"},
    "tensorboard": {"log_dir": "/w/tf_logs", "purge_step": 5},
    "trackio": {"init": {"project": "digits", "name": "first"}},
    "visdom": {"init": {"server": "http://host", "port": 8097, "env": "digits"}},
    "wandb": {
        "init": {"project": "digits", "mode": "online", "settings": {"base_url": "http://host"}},
        "run_id": "1f",
    },
}
"""Arguments of ``connect`` as a run leaves them for ``lightning-hooks replay``, by tracker.

The table of trackers has another form, because an option has several places or a type."""
