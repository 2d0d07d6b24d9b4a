"""``mmcv.cnn``: layers, building blocks and initializers."""
