"""Run at Python's start: declares the operators required by torchvision's import.

torchvision's wheel on PyPI loads no operators with a torch without CUDA.
"""

import torch

if torch.version.cuda is None:
    SCHEMA = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        SCHEMA.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
