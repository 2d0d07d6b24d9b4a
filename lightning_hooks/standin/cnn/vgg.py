"""mmcv's VGG: style losses and hooks look for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from lightning_hooks.standin.cnn.initializers import constant_init, kaiming_init, normal_init
from lightning_hooks.standin.runner.checkpoint import load_checkpoint

__all__ = ["VGG"]

_BLOCKS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Module):
    """VGG, by mmcv's and torchvision's keys: ``features`` and ``classifier``.

    Args:
        depth: 11, 13, 16 or 19.
        with_bn: Whether there are norms.
        num_classes: How many classes; -1 for no classifier.
        num_stages: How many of the five stages.
        dilations: Of each stage.
        out_indices: Which stages' outputs are returned.
        frozen_stages: Up to which stage parameters stay; -1 for none.
        bn_eval: Whether norms are in evaluation mode in training.
        bn_frozen: Whether their parameters stay then.
        ceil_mode: Of the poolings.
        with_last_pool: Whether the last stage ends with one.
    """

    def __init__(
        self,
        depth: int,
        with_bn: bool = False,
        num_classes: int = -1,
        num_stages: int = 5,
        dilations: Sequence[int] = (1, 1, 1, 1, 1),
        out_indices: Sequence[int] = (0, 1, 2, 3, 4),
        frozen_stages: int = -1,
        bn_eval: bool = True,
        bn_frozen: bool = False,
        ceil_mode: bool = False,
        with_last_pool: bool = True,
    ) -> None:
        super().__init__()
        if depth not in _BLOCKS:
            raise KeyError(f"invalid depth {depth} for vgg, it must be one of {[*_BLOCKS]}")
        if not (1 <= num_stages <= 5 and len(dilations) == num_stages):
            raise AssertionError(f"{num_stages} stages need as many dilations, got {dilations}")
        if max(out_indices) > num_stages:
            raise AssertionError(f"there are {num_stages} stages, got out_indices={out_indices}")
        self.num_classes, self.out_indices = num_classes, out_indices
        self.frozen_stages, self.bn_eval, self.bn_frozen = frozen_stages, bn_eval, bn_frozen
        self.stage_blocks = _BLOCKS[depth][:num_stages]
        self.inplanes = 3
        self.module_name = "features"
        self.range_sub_modules: list[list[int]] = []
        layers: list[nn.Module] = []
        for stage, (blocks, dilation) in enumerate(zip(self.stage_blocks, dilations, strict=True)):
            start, planes = len(layers), 64 * min(2**stage, 8)
            for _ in range(blocks):
                conv = nn.Conv2d(self.inplanes, planes, 3, padding=dilation, dilation=dilation)
                norm = [nn.BatchNorm2d(planes)] if with_bn else []
                layers += [conv, *norm, nn.ReLU(inplace=True)]
                self.inplanes = planes
            layers.append(nn.MaxPool2d(2, 2, ceil_mode=ceil_mode))
            self.range_sub_modules.append([start, len(layers)])
        if not with_last_pool:
            layers.pop()
            self.range_sub_modules[-1][1] -= 1
        self.features = nn.Sequential(*layers)
        if num_classes > 0:
            wide = (nn.Linear(512 * 7 * 7, 4096), nn.Linear(4096, 4096))
            hidden = [part for one in wide for part in (one, nn.ReLU(True), nn.Dropout())]
            self.classifier = nn.Sequential(*hidden, nn.Linear(4096, num_classes))

    def init_weights(self, pretrained: str | None = None) -> None:
        """Load a checkpoint, or initialize by He's rule."""
        if pretrained is not None:
            load_checkpoint(self, pretrained, strict=False)
            return
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                kaiming_init(part)
            elif isinstance(part, nn.BatchNorm2d):
                constant_init(part, 1)
            elif isinstance(part, nn.Linear):
                normal_init(part, std=0.01)

    def forward(self, x: torch.Tensor) -> Any:
        """Return the stages' outputs: one, or a tuple of several."""
        found = []
        for stage, (start, end) in enumerate(self.range_sub_modules):
            x = self.features[start:end](x)
            if stage in self.out_indices:
                found.append(x)
        if self.num_classes > 0:
            found.append(self.classifier(x.flatten(1)))
        return found[0] if len(found) == 1 else tuple(found)

    def train(self, mode: bool = True) -> VGG:
        """Switch the mode; what is frozen stays."""
        super().train(mode)
        if self.bn_eval:
            for part in self.modules():
                if isinstance(part, nn.BatchNorm2d):
                    part.eval()
                    for parameter in part.parameters() if self.bn_frozen else ():
                        parameter.requires_grad = False
        if mode and self.frozen_stages >= 0:
            end = self.range_sub_modules[self.frozen_stages][1]
            for part in [*self.features][:end]:
                part.train(False)
                for parameter in part.parameters():
                    parameter.requires_grad = False
        return self
