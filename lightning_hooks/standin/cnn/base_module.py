"""mmcv's BaseModule: a module with a config for the initialization of weights."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from torch import nn

from lightning_hooks.utils.warn import warn

__all__ = ["BaseModule", "ModuleDict", "ModuleList", "Sequential"]


class BaseModule(nn.Module):
    """A module with ``init_weights``.

    Args:
        init_cfg: ``dict(type="Kaiming", layer="Conv2d")``, or a list of dicts.

    Note:
        Departure from mmcv: no log file about the initialization is written.
    """

    _is_init = False

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__()
        self.init_cfg = copy.deepcopy(init_cfg)

    @property
    def is_init(self) -> bool:
        """Whether the weights have been initialized."""
        return self._is_init

    def init_weights(self) -> None:
        """Initialize by ``init_cfg``, then call ``init_weights`` of the children."""
        if self._is_init:
            name = type(self).__name__
            warn(f"init_weights of {name} has been called more than once.")
            return
        if self.init_cfg:
            from lightning_hooks.standin.installation import installed

            with installed():
                from mmcv.cnn import initialize
            initialize(self, self.init_cfg)
            if isinstance(self.init_cfg, dict) and self.init_cfg["type"] == "Pretrained":
                return  # the checkpoint has the children's weights
        for child in self.children():
            init_weights: Any = getattr(child, "init_weights", None)
            if init_weights is not None:
                init_weights()
        self._is_init = True

    def __repr__(self) -> str:
        text = super().__repr__()
        return text if not self.init_cfg else f"{text}\ninit_cfg={self.init_cfg}"


class Sequential(BaseModule, nn.Sequential):
    """``torch.nn.Sequential`` with ``init_weights``."""

    def __init__(self, *args: Any, init_cfg: Any = None) -> None:
        nn.Sequential.__init__(self, *args)
        self.init_cfg = copy.deepcopy(init_cfg)


class ModuleList(BaseModule, nn.ModuleList):
    """``torch.nn.ModuleList`` with ``init_weights``."""

    def __init__(self, modules: Iterable[nn.Module] | None = None, init_cfg: Any = None) -> None:
        nn.ModuleList.__init__(self, modules)
        self.init_cfg = copy.deepcopy(init_cfg)


class ModuleDict(BaseModule, nn.ModuleDict):
    """``torch.nn.ModuleDict`` with ``init_weights``."""

    def __init__(self, modules: dict[str, nn.Module] | None = None, init_cfg: Any = None) -> None:
        nn.ModuleDict.__init__(self, modules)
        self.init_cfg = copy.deepcopy(init_cfg)
