"""The models and configs of param_groups.json, in plain torch: imports neither mmcv nor us."""

from typing import Any

import torch
from torch import nn

LR, DECAY = 0.01, 0.05


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(4)
        self.attn = nn.Linear(4, 4)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(3, 2))
        self.gamma = nn.Parameter(torch.ones(4))
        self.ffn = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))


class BEiT(nn.Module):
    """A vision transformer; the optimizer constructor recognizes the class name."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, 4))
        self.patch_embed = nn.Conv2d(3, 4, 2)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.norm = nn.LayerNorm(4)


class Stage(nn.Module):
    """A stage of a Swin transformer."""

    def __init__(self, depth: int, *, has_downsample: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        if has_downsample:
            parts = {"norm": nn.LayerNorm(4), "reduction": nn.Linear(4, 4, bias=False)}
            self.downsample = nn.ModuleDict(parts)


class Swin(nn.Module):
    """A Swin transformer."""

    depths = (2, 1)

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 4, 2)
        self.stages = nn.ModuleList(
            Stage(depth, has_downsample=not index) for index, depth in enumerate(self.depths)
        )
        self.norm3 = nn.LayerNorm(4)


class ConvBlock(nn.Module):
    """A convolution block with a depth-wise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 1)
        self.bn1 = nn.BatchNorm2d(4)
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4)
        self.gn = nn.GroupNorm(2, 4)


class ResNet(nn.Module):
    """A network of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(ConvBlock())
        self.layer2 = nn.Sequential(ConvBlock(), ConvBlock())
        self.conv1.weight.requires_grad = False  # as with frozen_stages=0


class Model(nn.Module):
    """A backbone and a head."""

    def __init__(self, backbone: type[nn.Module]) -> None:
        super().__init__()
        self.backbone = backbone()
        self.scale = nn.Parameter(torch.ones(2, 2))
        self.head = nn.Linear(4, 2)


BACKBONES = {"vit": BEiT, "swin": Swin, "resnet": ResNet}

# as in the configs of mmcls, mmdet, mmseg and mmselfsup
PARAMWISE: list[dict[str, Any]] = [
    {"norm_decay_mult": 0.0, "bias_decay_mult": 0.0},
    {"bias_lr_mult": 2.0, "bias_decay_mult": 0.0},
    {"norm_decay_mult": 0.0, "dwconv_decay_mult": 0.5, "bypass_duplicate": True},
    {"custom_keys": {"head": {"lr_mult": 10.0}}},
    {"custom_keys": {"backbone": {"lr_mult": 0.1, "decay_mult": 1.0}, "norm": {"decay_mult": 0}}},
    {
        "norm_decay_mult": 0.0,
        "bias_decay_mult": 0.0,
        "custom_keys": {
            ".cls_token": {"decay_mult": 0.0},
            ".pos_embed": {"decay_mult": 0.0},
            "relative_position_bias_table": {"decay_mult": 0.0},
            ".scale": {"lr_mult": 3.0},
            "backbone.layers.1.ffn": {"lr_mult": 0.5},
        },
    },
]
LAYER_DECAY = 0.65
SWIN_RULES: dict[str, Any] = {"norm": {"weight_decay": 0.0}, "bias": {"weight_decay": 0.0}}
