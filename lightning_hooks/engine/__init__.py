"""The training loop for hooks: Lightning's events become mmcv's ten points.

:mod:`~lightning_hooks.engine.hook` has the base class of hooks; driver, runner, hook list and
points are below, and import downwards only.
"""
