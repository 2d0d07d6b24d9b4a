"""Started with Python: declares the operators that torchvision's import asks for.

torchvision's wheel on PyPI loads no operators beside a torch without CUDA.
"""

import torch

if torch.version.cuda is None:
    SCHEMA = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        SCHEMA.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
