"""Make ``import mmcv`` work without mmcv 1.x, with this package's hooks and runners.

::

    from lightning_hooks import standin

    standin.install()
    from mmcv.runner import HOOKS, EpochBasedRunner

or, for a whole script, ``python -m lightning_hooks.standin train.py config.py``. Where a real
mmcv 1.x is installed, it is what is imported; beside mmcv 2.x only what that has lost is filled
in. The names are those of :mod:`lightning_hooks.standin.names`.
"""

from lightning_hooks.standin.installation import install as install
from lightning_hooks.standin.installation import installed as installed
from lightning_hooks.standin.installation import uninstall as uninstall
