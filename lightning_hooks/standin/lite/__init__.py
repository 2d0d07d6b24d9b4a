"""What the stand-in takes from the files of OpenMMLab's wheels ``mmcv-lite`` and ``mmengine``."""
