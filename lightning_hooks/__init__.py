"""Training callbacks for PyTorch Lightning: schedules, averages, checkpoints, loggers."""

from lightning_hooks import _exports

__all__, __getattr__, __dir__ = _exports.PUBLIC, _exports.import_name, _exports.list_names

__version__ = "0.1.0"
