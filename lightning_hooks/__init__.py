"""Your mmcv hooks, as Lightning callbacks; your old hook files, unchanged."""

from lightning_hooks import _exports

__all__, __getattr__, __dir__ = _exports.PUBLIC, _exports.import_name, _exports.list_names

__version__ = "0.1.0"
