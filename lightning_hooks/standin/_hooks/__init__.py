"""mmcv's own classes of hooks where ours differ from them.

The folder's name begins with an underscore since a LightningCLI finds classes in public modules by
their short names, where ``EMAHook`` must be one class alone.
"""
