"""``mmcv.ops`` in plain torch: what detection and segmentation need of mmcv's compiled operators.

An import registers the layers: ``dict(type="DCNv2")`` and the like.
"""

from lightning_hooks.standin.ops import attention as attention
from lightning_hooks.standin.ops import deform_layers as deform_layers
from lightning_hooks.standin.ops import sync_bn as sync_bn
