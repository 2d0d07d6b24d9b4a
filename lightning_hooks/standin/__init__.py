"""Make ``import mmcv`` work without mmcv 1.x, with this package's hooks and runners.

::

    from lightning_hooks import standin

    standin.install()
    from mmcv.runner import HOOKS, EpochBasedRunner

or, for a whole script, ``python -m lightning_hooks.standin train.py config.py``. An installed mmcv
1.x takes precedence. ``lightning_hooks.standin.name_table`` lists the names.

mmcv's layers, images, videos, ``Config``, ``load`` and ``dump``, initializers and small helpers
come from OpenMMLab's own wheels, with the same code as mmcv 1.7.2: ``pip install mmcv-lite==2.2.0
mmengine==0.10.7 torchvision``. On machines without libGL, install OpenCV without windows, and the
wheels without their dependencies::

    pip install --no-deps mmcv-lite==2.2.0 mmengine==0.10.7
    pip install addict opencv-python-headless pillow pyyaml rich termcolor yapf

Hooks, runners, registries and checkpoints need no wheel.
"""

from lightning_hooks.standin.installation import install as install
from lightning_hooks.standin.installation import installed as installed
from lightning_hooks.standin.installation import uninstall as uninstall
