"""``mmcv.image``: reading, resizing and converting images."""
