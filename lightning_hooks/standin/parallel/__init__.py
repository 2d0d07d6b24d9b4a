"""``mmcv.parallel``: model wrappers and data containers."""
