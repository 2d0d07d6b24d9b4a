"""Sample feature maps at points, as PointRend does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.utils import _pair

__all__ = [
    "SimpleRoIAlign",
    "abs_img_point_to_rel_img_point",
    "bilinear_grid_sample",
    "denormalize",
    "generate_grid",
    "get_shape_from_feature_map",
    "normalize",
    "point_sample",
    "rel_roi_point_to_abs_img_point",
    "rel_roi_point_to_rel_img_point",
]


def bilinear_grid_sample(im: Tensor, grid: Tensor, align_corners: bool = False) -> Tensor:
    """Sample images (n, c, h, w) at points (n, rows, columns, 2) in [-1, 1]; outside they are 0."""
    assert im.size(0) == grid.size(0), f"{im.size(0)} images, but grids for {grid.size(0)}"
    return functional.grid_sample(im, grid, align_corners=align_corners)


def normalize(grid: Tensor) -> Tensor:
    """Return coordinates in [-1, 1] as coordinates in [0, 1]."""
    return (grid + 1.0) / 2.0


def denormalize(grid: Tensor) -> Tensor:
    """Return coordinates in [0, 1] as coordinates in [-1, 1]."""
    return grid * 2.0 - 1.0


def generate_grid(
    num_grid: int, size: tuple[int, int], device: torch.device | str | None = None
) -> Tensor:
    """Return the centres of a regular grid over [0, 1]²: a tensor (num_grid, points, 2) of x, y."""
    same = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], device=device)
    grid = functional.affine_grid(same, [1, 1, *size], align_corners=False)
    return normalize(grid).view(1, -1, 2).expand(num_grid, -1, -1)


@torch.no_grad()
def rel_roi_point_to_abs_img_point(rois: Tensor, rel_roi_points: Tensor) -> Tensor:
    """Return points (n, p, 2) in regions' coordinates, [0, 1]², in those of the image.

    Args:
        rois: Regions (x1, y1, x2, y2), or with an index before them, which is not read.
        rel_roi_points: The points (x, y) within each region.
    """
    assert rel_roi_points.size(0) == rois.size(0), "rois and points of different length"
    assert rois.dim() == 2, f"rois must be (n, 4) or (n, 5), got {tuple(rois.shape)}"
    shape = tuple(rel_roi_points.shape)
    assert shape[2:] == (2,), f"rel_roi_points must be (n, p, 2), got {shape}"
    boxes = rois[:, None, -4:] if rois.size(1) == 5 else rois[:, None]
    return rel_roi_points * (boxes[..., 2:4] - boxes[..., :2]) + boxes[..., :2]


def get_shape_from_feature_map(x: Tensor) -> Tensor:
    """Return the width and height of maps (n, c, h, w), as floats of shape (1, 1, 2)."""
    return torch.tensor(x.shape[2:], device=x.device).flip(0).view(1, 1, 2).float()


def abs_img_point_to_rel_img_point(
    abs_img_points: Tensor, img: tuple[int, int] | Tensor, spatial_scale: float = 1.0
) -> Tensor:
    """Return points (n, p, 2) in an image's coordinates in those of its size, [0, 1]².

    Args:
        abs_img_points: The points (x, y).
        img: Height and width, or feature maps (n, c, h, w).
        spatial_scale: Factor from the points' coordinates to those of the map.
    """
    if isinstance(img, Tensor):
        assert img.dim() == 4, f"feature maps must be (n, c, h, w), got {tuple(img.shape)}"
        scale = get_shape_from_feature_map(img)
    else:
        assert isinstance(img, tuple), f"img must be (h, w) or a tensor, got {img!r}"
        assert len(img) == 2, f"img must be (h, w), got {img!r}"
        height, width = img
        scale = torch.tensor([width, height], dtype=torch.float, device=abs_img_points.device)
    return abs_img_points / scale.view(1, 1, 2) * spatial_scale


def rel_roi_point_to_rel_img_point(
    rois: Tensor,
    rel_roi_points: Tensor,
    img: tuple[int, int] | Tensor,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Return points (n, p, 2) in regions' coordinates, [0, 1]², in those of the image's size.

    Args:
        rois: Regions (x1, y1, x2, y2), or with an index before them, which is not read.
        rel_roi_points: The points (x, y) within each region.
        img: Height and width, or feature maps (n, c, h, w).
        spatial_scale: Factor from the regions' coordinates to those of the map.
    """
    points = rel_roi_point_to_abs_img_point(rois, rel_roi_points)
    return abs_img_point_to_rel_img_point(points, img, spatial_scale)


def point_sample(
    input: Tensor, points: Tensor, align_corners: bool = False, **kwargs: Any
) -> Tensor:
    """Sample feature maps at points by ``torch.nn.functional.grid_sample``.

    Args:
        input: Feature maps (n, c, h, w).
        points: Points (x, y) in [0, 1]², of shape (n, p, 2) or (n, rows, columns, 2).
        align_corners: Whether 0 and 1 are the centres of the outermost pixels, not their edges.
        **kwargs: Other arguments of ``grid_sample``.

    Returns:
        The samples, of shape (n, c, p) or (n, c, rows, columns).
    """
    grid = denormalize(points if points.dim() == 4 else points.unsqueeze(2))
    sampled = functional.grid_sample(input, grid, align_corners=align_corners, **kwargs)
    return sampled if points.dim() == 4 else sampled.squeeze(3)


class SimpleRoIAlign(nn.Module):
    """Pool regions with one sample for each bin, as PointRend does.

    The regions of an image must follow one another, as those of ``bbox2roi`` do.

    Args:
        output_size: Height and width of the result.
        spatial_scale: Factor from the regions' coordinates to those of the map.
        aligned: If False, the coordinates of early versions: ``align_corners=True``.
    """

    def __init__(
        self, output_size: int | tuple[int, int], spatial_scale: float, aligned: bool = True
    ) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = float(spatial_scale)
        self.use_torchvision = False  # as the other poolings have it
        self.aligned = aligned

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        """Pool the regions (index, x1, y1, x2, y2) of the maps."""
        grid = generate_grid(rois.size(0), self.output_size, device=rois.device)
        pooled = [features.new_zeros(0, features.size(1), grid.size(1))]
        for index in range(features.size(0)):
            chosen = rois[:, 0].long() == index
            if chosen.any():
                image = features[index : index + 1]
                points = rel_roi_point_to_rel_img_point(
                    rois[chosen], grid[chosen], image, self.spatial_scale
                )
                sampled = point_sample(image, points[None], align_corners=not self.aligned)
                pooled.append(sampled.squeeze(0).transpose(0, 1))
        return torch.cat(pooled).reshape(-1, features.size(1), *self.output_size)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(output_size={self.output_size}, spatial_scale={self.spatial_scale}"
