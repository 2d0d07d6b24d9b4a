"""Make ``import mmcv`` work without mmcv 1.x, with this package's hooks and runners.

::

    from lightning_hooks import standin

    standin.install()
    from mmcv.runner import HOOKS, EpochBasedRunner

or, for a whole script, ``python -m lightning_hooks.standin train.py config.py``. An installed mmcv
1.x takes precedence. ``lightning_hooks.standin.name_table`` lists the names.

mmcv's layers, images and videos come from OpenMMLab's own wheel, with the same code as mmcv 1.7.2:
``pip install mmcv-lite==2.2.0 torchvision``. On machines without libGL, install OpenCV without
windows, and the wheel without its dependencies, which the stand-in does not need::

    pip install opencv-python-headless pillow
    pip install --no-deps mmcv-lite==2.2.0
"""

from lightning_hooks.standin.installation import install as install
from lightning_hooks.standin.installation import installed as installed
from lightning_hooks.standin.installation import uninstall as uninstall
