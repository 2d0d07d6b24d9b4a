"""The training loop as hooks see it: Lightning's events become the ten points of mmcv.

Import :mod:`~lightning_hooks.engine.hook` to write a hook; what is below it (driver, runner, hook
list, points) imports downwards only.
"""
