"""``mmcv.ops``: the operators of mmcv's compiled extension in plain torch.

mmcv's functions and layers themselves are in the files of mmcv-lite, which call them.
"""
