"""Random arguments by the names of parameters, for the walk of ``utilities.py``."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from torch import nn


def image(*shape: int) -> np.ndarray:
    return np.random.randint(0, 256, shape, dtype=np.uint8)


def encoded(ending: str) -> bytes:
    import cv2

    return cv2.imencode(ending, image(13, 17, 3))[1].tobytes()


def flow_bytes(width: int = 3, height: int = 2) -> bytes:
    size = np.array([width, height], np.int32).tobytes()
    return b"PIEH" + size + np.random.rand(height, width, 2).astype(np.float32).tobytes()


def video() -> str:
    """Write a short video; return the path."""
    import cv2

    writer = cv2.VideoWriter("video.avi", cv2.VideoWriter_fourcc(*"MJPG"), 5, (32, 24))
    for _ in range(4):
        writer.write(image(24, 32, 3))
    writer.release()
    return "video.avi"


def layers() -> nn.Sequential:
    made = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 1))
    made(torch.rand(2, 8, 5, 5))
    return made


def noted() -> nn.Module:
    """Return a layer with mmcv's initialization info."""
    made = nn.Linear(2, 2)
    made._params_init_info = {p: {"tmp_mean_value": p.mean() + 1} for p in made.parameters()}
    return made


def counted() -> nn.Module:
    """Return layers with counted operations."""
    made = layers()
    for part in made:
        part.__flops__ = part.__batch_counter__ = 0
    made = mmcv_name("cnn.utils.flops_counter.add_flops_counting_methods")(made)
    made.start_flops_count()
    made(torch.rand(2, 8, 9, 10))
    return made


class Whole(nn.Module):
    """A module with layers for initialization and for lookups."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers(), nn.Linear(4, 3)


SEARCH = {"num_branches": 2, "expand_rate": 0.5, "max_step": 1, "search_interval": 1, "mmin": 1,
          "mmax": 24, "init_alphas": 0.01, "exp_rate": 0.5, "normalize": "absavg"}  # fmt: skip
BOXES = np.array([[2, 3, 8, 9], [1, 1, 5, 12]])
ATTENTION = {"type": "MultiheadAttention", "embed_dims": 8, "num_heads": 2}
LAYER = {"type": "BaseTransformerLayer", "attn_cfgs": ATTENTION,
         "ffn_cfgs": {"type": "FFN", "embed_dims": 8, "feedforward_channels": 12},
         "operation_order": ("self_attn", "norm", "ffn", "norm")}  # fmt: skip

REQUIRED: dict[str, Any] = {
    # images and arrays
    "img": lambda: image(13, 17, 3), "dst_img": lambda: image(6, 9, 3),
    "img_or_path": lambda: image(5, 5, 3), "file_path": lambda: "deep/image.png",
    "content": lambda: encoded(".jpg"), "flag": lambda: "color", "src": lambda: "bgr",
    "dst": lambda: "hsv", "bboxes": lambda: BOXES.copy(), "img_shape": lambda: (7, 6),
    "shape": lambda: 4, "divisor": lambda: 4, "scale": lambda: 1.7, "size": lambda: (9, 8),
    "angle": lambda: 30, "magnitude": lambda: 0.3, "offset": lambda: 4,
    "old_size": lambda: (100, 50), "backend": lambda: "cv2",
    "tensor": lambda: torch.rand(2, 3, 4, 5) * 200,
    "hue_factor": lambda: 0.2, "eigval": lambda: np.random.rand(3), "bits": lambda: 3,
    "eigvec": lambda: np.random.rand(3, 3), "mean": lambda: np.array([123.7, 116.3, 103.5]),
    "std": lambda: np.array([58.4, 57.1, 57.4]), "lut_table": lambda: image(256),
    "arr": lambda: np.random.randn(6, 5), "min_val": lambda: -1, "max_val": lambda: 1,
    "levels": lambda: 7,
    # videos and drawing
    "capacity": lambda: 2, "filename": video, "in_file": video, "out_file": lambda: "out.png",
    "frame_dir": lambda: "frames", "video_file": lambda: "out.avi", "video_list": lambda: [video()],
    "dx": lambda: np.random.rand(4, 5), "dy": lambda: np.random.rand(4, 5),
    "flow": lambda: np.random.randn(13, 17, 2).astype(np.float32),
    "flow_or_path": lambda: np.random.rand(4, 5, 2).astype(np.float32),
    "color": lambda: "red", "labels": lambda: np.array([0, 1]), "value": lambda: (0, 255, 0),
    # layers
    "in_channels": lambda: 8, "out_channels": lambda: 6, "in_features": lambda: 8,
    "out_features": lambda: 6, "kernel_size": lambda: 3, "ratio": lambda: 0.5,
    "cfg": lambda: {"type": "ReLU"}, "m": layers, "module": Whole,
    "layer": lambda: nn.BatchNorm2d(8),
    "input": lambda: torch.rand(2, 8, 9, 10), "weight": lambda: torch.rand(6, 8, 3, 3),
    "x": lambda: torch.rand(2, 8, 9, 10), "num_features": lambda: 8, "embed_dims": lambda: 8,
    "num_heads": lambda: 2, "scale_factor": lambda: 2, "upsample_kernel": lambda: 3,
    "torch_version": lambda: "1.4", "version_threshold": lambda: "1.9", "inplanes": lambda: 8,
    "planes": lambda: 8, "in_planes": lambda: 8, "out_planes": lambda: 6, "depth": lambda: 18,
    "class_type": lambda: nn.BatchNorm2d, "blocks": lambda: 2, "num_blocks": lambda: 1,
    "op_layer": lambda: nn.Conv2d(8, 6, 3, padding=2, dilation=2), "global_config": lambda: SEARCH,
    "dilation": lambda: (4, 6), "model": layers, "input_shape": lambda: (8, 9, 9),
    "net_main_module": layers, "flops": lambda: 12345678.9, "num_params": lambda: 54321,
    "total_flops": lambda: 1e6, "total_params": lambda: 1e3, "init_cfg": lambda: {
        "type": "Constant", "val": 2, "layer": "Linear"},
    "output": lambda: torch.rand(2, 6, 7, 8), "conv_module": lambda: counted()[0], "self": counted,
    "init_info": lambda: "by hand", "val": lambda: 0.3, "prior_prob": lambda: 0.01,
    "checkpoint": lambda: "weights.pth", "registry": lambda: mmcv_name("cnn.MODELS"),
}  # fmt: skip
"""Makes a parameter's argument."""

NORMS = [{"type": "BN"}, {"type": "GN", "num_groups": 2, "requires_grad": False}, {"type": "LN"}]
VARIED: dict[str, list[Any]] = {
    "act_cfg": [None, {"type": "LeakyReLU", "negative_slope": 0.2}, {"type": "HSwish"}],
    "alpha": [0.5], "angle": [-45], "as_strings": [False], "attention_type": ["0100", "1010"],
    "auto_bound": [True], "backend": ["pillow", "cv2", "nothing"], "batch_first": [True],
    "bbox_color": ["red"], "bias": [False, 0.5], "bias_prob": [0.01], "bn_eval": [False],
    "border_mode": ["reflect"], "border_value": [9], "center": [(3, 4)],
    "channel_order": ["rgb"], "class_names": [["cat", "dog"]], "clip_shape": [(9, 9)],
    "colors": ["red"], "concat_axis": [1], "conv_cfg": [{"type": "ConvWS"}, {"type": "ConvAWS"},
                                                       {"type": "Conv2dAdaptivePadding"}],
    "cutoff": [5, (2, 10)], "denorm": [False], "dilation": [2], "direction": [
        "vertical", "diagonal", "horizontal", "none"], "distribution": ["uniform", "student"],
    "drop_prob": [0.9], "dropout_layer": [
        {"type": "DropPath", "drop_prob": 0.3}], "dw_norm_cfg": NORMS, "end": [2],
    "factor": [0.3, 1.7], "fusion_types": [("channel_mul",), ("channel_add", "channel_mul")],
    "flag": ["grayscale", "unchanged", "color_ignore_orientation"], "gamma": [3], "groups": [2],
    "inplace": [False, True], "interpolate_mode": ["bilinear"], "interpolation": [
        "nearest", "bicubic", "area", "lanczos", "none"], "keep_ratio": [True], "keepdim": [True],
    "layer": ["Conv2d", ["Conv2d", "Linear"], 3], "mode": ["embedded_gaussian", "dot_product",
        "gaussian", "concatenation", "fan_in", "search"], "norm": [False],
    "norm_cfg": [None, *NORMS],
    "num_classes": [3], "num_fcs": [3], "order": [("norm", "conv", "act")], "out_indices": [(1, 2)],
    "override": [{"name": "second", "type": "Normal", "std": 2.0}], "pad_fill": [7, [1, 2, 3]],
    "pad_val": [5, (1, 2, 3)], "padding": [1, (1, 3), (1, 2, 3, 4), "same"], "padding_mode": [
        "reflect", "circular", "edge", "symmetric", "replicate"], "pooling_type": ["avg"],
    "position_embedding_dim": [8], "postfix": [3, "_a"], "pre_options": ["-y"], "quantize": [True],
    "return_scale": [True], "scale": [(30, 50), 0.4, -1.0], "score_thr": [0.3],
    "shape": [(20, 30)], "size": [(12, 12)], "spatial_range": [3], "start": [1], "stride": [2],
    "style": ["caffe"], "sub_sample": [True], "thr": [60], "to_bgr": [False], "to_rgb": [False],
    "tile_grid_size": [(3, 4)], "training": [True], "units": [None, "KFLOPs"], "use_scale": [False],
    "with_bn": [True], "with_cp": [True], "with_last_pool": [False], "with_spectral_norm": [True],
    "y_only": [True], "zero_init": [False],
}  # fmt: skip
"""Alternative values of a parameter, each used alone."""

SPECIAL: dict[str, list[dict[str, Any]]] = {
    "AdaptivePadding": [{"kernel_size": 3, "stride": 2, "padding": p} for p in ("same", "corner")],
    "BaseTransformerLayer": [{k: v for k, v in LAYER.items() if k != "type"}],
    "Cache": [{"capacity": 2}],
    "ConvWS2d": [{"in_channels": 8, "out_channels": 6, "kernel_size": 3, "eps": 0.1}],
    "DepthwiseSeparableConvModule": [{"in_channels": 8, "out_channels": 6, "kernel_size": 1,
                                      "pw_act_cfg": None}],
    "FFN": [{"embed_dims": 8, "feedforward_channels": 12, "any": 1, "add_identity": False}],
    "GeneralizedAttention": [{"in_channels": 8, "num_heads": 2, "attention_type": kind}
                             for kind in ("1111", "0010", "1000")],
    "PatchEmbed": [{"in_channels": 8, "embed_dims": 12, "kernel_size": 3, "stride": 2,
                    "norm_cfg": norm, "input_size": 9} for norm in (None, {"type": "LN"})],
    "RFSearchHook": [{"mode": mode, "config": {"search": SEARCH}}
                     for mode in ("search", "fixed_single_branch", "nothing")],
    "ResNet": [{"depth": depth} for depth in (18, 50, 3)],
    "TransformerLayerSequence": [{"transformerlayers": LAYER, "num_layers": 2}],
    "VGG": [{"depth": depth} for depth in (11, 4)],
    "build_activation_layer": [{"cfg": {"type": kind}} for kind in (
        "ReLU", "LeakyReLU", "PReLU", "ELU", "Sigmoid", "Tanh", "SiLU", "Clamp", "Clip", "GELU",
        "HSigmoid", "HSwish", "Swish", "RReLU", "ReLU6", "Nothing")],
    "build_attention": [{"cfg": ATTENTION}],
    "build_conv_layer": [{"cfg": None if kind is None else {"type": kind}, "in_channels": 8,
                          "out_channels": 6, "kernel_size": 3} for kind in (
        None, "Conv1d", "Conv2d", "Conv3d", "Conv", "ConvWS", "ConvAWS", "Conv2dAdaptivePadding",
        "deconv", "Nothing")],
    "build_dropout": [{"cfg": {"type": kind, "drop_prob": 0.4}}
                      for kind in ("DropPath", "Dropout", "Nothing")],
    "build_feedforward_network": [{"cfg": LAYER["ffn_cfgs"]}],
    "build_model_from_cfg": [{"cfg": [{"type": nn.Linear, "in_features": 8, "out_features": 3}] * 2,
                              "registry": ...}],
    "build_norm_layer": [{"cfg": {"type": kind, **more}, "num_features": 8, "postfix": 1}
                         for kind, more in (
        ("BN", {}), ("BN1d", {}), ("BN2d", {}), ("BN3d", {"eps": 1e-3}), ("SyncBN", {}),
        ("GN", {"num_groups": 2}), ("LN", {"requires_grad": False}), ("IN", {}), ("IN1d", {}),
        ("IN3d", {"affine": True}), ("Nothing", {}), ("GN", {}))],
    "build_padding_layer": [{"cfg": {"type": kind}, "padding": 2}
                            for kind in ("zero", "reflect", "replicate", "Nothing")],
    "build_plugin_layer": [{"cfg": {"type": kind, **more}, "postfix": 2, "in_channels": 8}
                           for kind, more in (
        ("ConvModule", {"out_channels": 4, "kernel_size": 1}), ("ContextBlock", {"ratio": 0.5}),
        ("NonLocal2d", {}), ("Nothing", {}))],
    "build_positional_encoding": [{"cfg": {"type": kind}} for kind in (nn.ReLU, "Nothing")],
    "build_transformer_layer": [{"cfg": LAYER}],
    "build_transformer_layer_sequence": [{"cfg": {
        "type": "TransformerLayerSequence", "transformerlayers": LAYER, "num_layers": 1}}],
    "build_upsample_layer": [{"cfg": {"type": kind, "scale_factor": 2}, **more} for kind, more in (
        ("nearest", {}), ("bilinear", {"align_corners": True}), ("Nothing", {}),
        ("pixel_shuffle", {"in_channels": 8, "out_channels": 6, "upsample_kernel": 3}))] + [
        {"cfg": {"type": "deconv"}, "in_channels": 8, "out_channels": 6, "kernel_size": 3}],
    "expand_rates": [{"dilation": (4, 6), "config": SEARCH}],
    "flow_from_bytes": [{"content": ...}],
    "get_single_padding": [{"kernel_size": 3, "dilation": 4}],
    "imconvert": [{"img": ..., "src": a, "dst": b} for a, b in (("bgr", "hls"), ("rgb", "bgr"))],
    "imresize_to_multiple": [{"img": ..., "divisor": (4, 8), "size": (30, 40)},
                             {"img": ..., "divisor": 4, "scale_factor": 1.7}],
    "impad": [{"img": ..., "shape": (20, 30)}, {"img": ..., "padding": (1, 2, 3, 4)}],
    "initialize": [{"module": ..., "init_cfg": config} for config in (
        {"type": "Kaiming", "layer": ["Conv2d", "Linear"], "a": 1, "distribution": "uniform"},
        {"type": "Xavier", "layer": "Linear", "override": {"name": "second", "type": "Normal"}},
        [{"type": "TruncNormal", "layer": "Linear", "std": 0.02}, {"type": "Caffe2Xavier",
                                                                 "layer": "Conv2d"}],
        {"type": "Uniform", "override": {"name": "third"}}, "text")],
    "make_color_wheel": [{"bins": [3, 2, 1, 4, 2, 5]}],
    "make_res_layer": [{"block": ..., "inplanes": 8, "planes": 4, "blocks": 2}],
    "sparse_flow_from_bytes": [{"content": ...}],
    "trunc_normal_": [{"tensor": ..., "std": 0.5}],
    "write_to_json": [{"config": {"a": 1}, "filename": "out.json"}],
}  # fmt: skip
"""Arguments of a function that depend on each other; `...` stands for a random argument."""

OWN: dict[tuple[str, str], Any] = {
    ("flow_from_bytes", "content"): flow_bytes,
    ("sparse_flow_from_bytes", "content"): lambda: encoded(".png"),
    ("make_res_layer", "block"): lambda: mmcv_name("cnn.resnet.Bottleneck"),
    ("flowwrite", "filename"): lambda: "flow.flo",
    ("flowshow", "flow"): lambda: np.random.randn(4, 5, 2).astype(np.float32),
    ("clahe", "img"): lambda: image(13, 17), ("print_model_with_flops", "model"): counted,
    ("imnormalize_", "img"): lambda: image(13, 17, 3).astype(np.float32),
    ("imdenormalize", "img"): lambda: np.random.randn(13, 17, 3),
    ("gray2bgr", "img"): lambda: image(13, 17), ("gray2rgb", "img"): lambda: image(13, 17),
    ("imshow_det_bboxes", "bboxes"): lambda: np.c_[BOXES, [0.2, 0.9]],
    ("Scale", "scale"): lambda: 1.5, ("PretrainedInit", "checkpoint"): lambda: "weights.pth",
    ("update_init_info", "module"): lambda: noted(),
    ("revert_sync_batchnorm", "module"): lambda: nn.SyncBatchNorm.convert_sync_batchnorm(Whole()),
}  # fmt: skip
"""Arguments of a single function."""


def mmcv_name(path: str) -> Any:
    module, _, name = f"mmcv.{path}".rpartition(".")
    return getattr(importlib.import_module(module), name)


def argument(name: str, parameter: str) -> Any:
    """Make the argument of a function, or a class, for a parameter."""
    if name.endswith("_hook") and parameter in ("module", "input"):
        return counted()["norm_" in name] if parameter == "module" else (torch.rand(2, 8, 9, 10),)
    return (OWN.get((name, parameter)) or REQUIRED[parameter])()
