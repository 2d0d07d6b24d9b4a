"""``mmcv.ops``: the operators behind the functions and layers in mmcv-lite's files."""
