"""Hook classes with mmcv's behaviour, for old code that the native hooks would break.

The folder's name begins with an underscore because LightningCLI finds classes of public modules by
their short names, and ``EMAHook`` must stay unambiguous.
"""
