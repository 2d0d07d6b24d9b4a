"""mmcv's layers, images and videos, from the files of OpenMMLab's own wheel ``mmcv-lite``."""
