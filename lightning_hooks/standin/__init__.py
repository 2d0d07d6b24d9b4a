"""Make ``import mmcv`` work without mmcv 1.x, with this package's hooks and runners.

::

    from lightning_hooks import standin

    standin.install()
    from mmcv.runner import HOOKS, EpochBasedRunner

or, for a whole script, ``python -m lightning_hooks.standin train.py config.py``. An installed mmcv
1.x takes precedence; to mmcv 2.x only the names that it has lost are added.
:mod:`lightning_hooks.standin.names` lists the names.
"""

from lightning_hooks.standin.installation import install as install
from lightning_hooks.standin.installation import installed as installed
from lightning_hooks.standin.installation import uninstall as uninstall
