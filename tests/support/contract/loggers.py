"""Arguments of the text log and the trackers, for the contract."""

from __future__ import annotations

from support.contract.case import Case

__all__ = ["CASES"]

CASES: dict[str, Case] = {
    "ClearMLLoggerHook": ({"interval": 2}, {"interval": -1}),
    "DvcliveLoggerHook": ({"interval": 2}, {"model_file": 3}),
    "LightningLoggerHook": (
        {"interval": 2, "logger": {"type": "CSVLogger"}},
        {"logger": {"type": "CVSLogger"}},
    ),
    "MlflowLoggerHook": ({"interval": 2, "log_model": False}, {"interval": -1}),
    "NeptuneLoggerHook": ({"interval": 2}, {"interval": -1}),
    "TensorboardLoggerHook": ({"interval": 2}, {"log_dir": 3}),
    "TextLoggerHook": ({"interval": 2}, {"interval": -1}),
    "TrackioLoggerHook": ({"interval": 2}, {"interval": -1}),
    "VisdomLoggerHook": ({"interval": 2}, {"timeout": -1.0}),
    "WandbLoggerHook": ({"interval": 2}, {"interval": -1}),
}
