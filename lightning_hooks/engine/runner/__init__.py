"""The runner: what hooks see of a run, under mmcv's names.

The driver and the hooks import from here; nothing here depends on the driver.
"""
