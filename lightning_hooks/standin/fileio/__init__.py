"""``mmcv.fileio``: files by path, local or remote."""
