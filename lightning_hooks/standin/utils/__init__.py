"""``mmcv.utils``: configs, registries and small helpers."""
