"""Table of the names that mmcv-lite's files give, by module, as mmcv 1.7.2 has them."""

from __future__ import annotations

from lightning_hooks.standin.lite.operators import OPERATORS

__all__ = ["LITE", "LITE_PACKAGES", "LITE_VERSION", "LITE_VERSIONS", "NEEDS_LITE"]

LITE_VERSION = "2.2.0"
"""The release, of mmcv-lite or mmcv, whose files have the same code as mmcv 1.7.2."""

LITE_VERSIONS = (LITE_VERSION, "2.3.6")
"""The releases whose files are read; 2.3.6 is of onedl-mmcv, whose code is the same."""

NEEDS_LITE = (
    "mmcv's layers, images and videos are in OpenMMLab's own wheel: "
    "pip install 'lightning-hooks[openmmlab]', or, without libGL, "
    f"pip install --no-deps mmcv-lite=={LITE_VERSION} opencv-python-headless pillow"
)

_TABLE = {
    "arraymisc.quantization": "quantize dequantize",
    "cnn.alexnet": "AlexNet",
    "cnn.bricks.activation": "Clamp GELU build_activation_layer",
    "cnn.bricks.context_block": "ContextBlock last_zero_init",
    "cnn.bricks.conv": "build_conv_layer",
    "cnn.bricks.conv2d_adaptive_padding": "Conv2dAdaptivePadding",
    "cnn.bricks.conv_module": "ConvModule",
    "cnn.bricks.conv_ws": "ConvAWS2d ConvWS2d conv_ws_2d",
    "cnn.bricks.depthwise_separable_conv_module": "DepthwiseSeparableConvModule",
    "cnn.bricks.drop": "DropPath Dropout build_dropout drop_path",
    "cnn.bricks.generalized_attention": "GeneralizedAttention",
    "cnn.bricks.hsigmoid": "HSigmoid",
    "cnn.bricks.hswish": "HSwish",
    "cnn.bricks.non_local": "NonLocal1d NonLocal2d NonLocal3d",
    "cnn.bricks.norm": "build_norm_layer infer_abbr is_norm",
    "cnn.bricks.padding": "build_padding_layer",
    "cnn.bricks.plugin": "build_plugin_layer",
    "cnn.bricks.scale": "Scale",
    "cnn.bricks.swish": "Swish",
    "cnn.bricks.transformer": (
        "AdaptivePadding BaseTransformerLayer FFN MultiheadAttention PatchEmbed PatchMerging "
        "TransformerLayerSequence"
    ),
    "cnn.bricks.upsample": "PixelShufflePack build_upsample_layer",
    "cnn.bricks.wrappers": (
        "Conv2d Conv3d ConvTranspose2d ConvTranspose3d Linear MaxPool2d MaxPool3d NewEmptyTensorOp "
        "obsolete_torch_version"
    ),
    "cnn.resnet": "BasicBlock Bottleneck ResNet conv3x3 make_res_layer",
    "cnn.rfsearch.operator": "BaseConvRFSearchOp Conv2dRFSearchOp",
    "cnn.rfsearch.search": "RFSearchHook",
    "cnn.rfsearch.utils": "expand_rates get_single_padding write_to_json",
    "cnn.utils.flops_counter": (
        "get_model_complexity_info flops_to_string params_to_string print_model_with_flops "
        "get_model_parameters_number add_flops_counting_methods"
    ),
    "cnn.utils.fuse_conv_bn": "fuse_conv_bn",
    "cnn.vgg": "VGG make_vgg_layer",
    "image.colorspace": (
        "bgr2gray bgr2hls bgr2hsv bgr2rgb bgr2ycbcr convert_color_factory gray2bgr gray2rgb "
        "hls2bgr hsv2bgr imconvert rgb2bgr rgb2gray rgb2ycbcr ycbcr2bgr ycbcr2rgb"
    ),
    "image.geometric": (
        "bbox_clip bbox_scaling cutout imcrop imflip imflip_ impad impad_to_multiple imrescale "
        "imresize imresize_like imresize_to_multiple imrotate imshear imtranslate rescale_size"
    ),
    "image.io": "imfrombytes imread imwrite supported_backends use_backend",
    "image.misc": "tensor2imgs",
    "image.photometric": (
        "adjust_brightness adjust_color adjust_contrast adjust_hue adjust_lighting "
        "adjust_sharpness auto_contrast clahe imdenormalize imequalize iminvert imnormalize "
        "imnormalize_ lut_transform posterize solarize"
    ),
    "video.io": "Cache VideoReader frames2video",
    "video.optflow": (
        "dequantize_flow flow_from_bytes flow_warp flowread flowwrite quantize_flow "
        "sparse_flow_from_bytes"
    ),
    "video.processing": "concat_video convert_video cut_video resize_video",
    "visualization.color": "Color color_val",
    "visualization.image": "imshow imshow_bboxes imshow_det_bboxes",
    "visualization.optflow": "flow2rgb flowshow make_color_wheel",
}

LITE = {f"mmcv.{module}": names for module, names in _TABLE.items()} | {
    f"mmcv.ops.{module}": names for module, names in OPERATORS.items()
}
LITE["mmcv.ops"] = "Conv2d ConvTranspose2d Linear MaxPool2d"
"""Names by module."""

LITE_PACKAGES = frozenset(module.rpartition(".")[0] for module in LITE)
"""Their packages: the wheel's ``__init__`` imports what mmcv's did."""
