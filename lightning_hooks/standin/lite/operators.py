"""Table of the names of ``mmcv.ops``, by module, as mmcv 1.7.2 has them.

mmcv-lite has the files, without the compiled extension that they call:
:mod:`lightning_hooks.standin.ops` takes its place. Modules without a name are of 2.x only: the
others import them.
"""

from __future__ import annotations

__all__ = ["OPERATORS"]

OPERATORS = {
    "active_rotated_filter": "ActiveRotatedFilterFunction active_rotated_filter",
    "assign_score_withk": "AssignScoreWithK assign_score_withk",
    "ball_query": "BallQuery ball_query",
    "bbox": "bbox_overlaps",
    "bezier_align": "",
    "bias_act": "",
    "border_align": "BorderAlignFunction border_align BorderAlign",
    "box_iou_quadri": "box_iou_quadri",
    "box_iou_rotated": "box_iou_rotated",
    "carafe": (
        "CARAFENaiveFunction carafe_naive CARAFENaive CARAFEFunction carafe CARAFE CARAFEPack"
    ),
    "cc_attention": "NEG_INF_DIAG CrissCrossAttention",
    "chamfer_distance": "ChamferDistanceFunction chamfer_distance",
    "contour_expand": "contour_expand",
    "conv2d_gradfix": "",
    "convex_iou": "convex_giou convex_iou",
    "corner_pool": "CornerPool",
    "correlation": "CorrelationFunction Correlation",
    "deform_conv": "DeformConv2dFunction deform_conv2d DeformConv2d DeformConv2dPack",
    "deform_roi_pool": (
        "DeformRoIPoolFunction deform_roi_pool DeformRoIPool DeformRoIPoolPack "
        "ModulatedDeformRoIPoolPack"
    ),
    "deprecated_wrappers": (
        "Conv2d_deprecated ConvTranspose2d_deprecated MaxPool2d_deprecated Linear_deprecated"
    ),
    "diff_iou_rotated": (
        "EPSILON SortVertices box_intersection box1_in_box2 box_in_box build_vertices "
        "sort_indices calculate_area oriented_box_intersection_2d box2corners "
        "diff_iou_rotated_2d diff_iou_rotated_3d"
    ),
    "filtered_lrelu": "",
    "focal_loss": (
        "SigmoidFocalLossFunction sigmoid_focal_loss SigmoidFocalLoss "
        "SoftmaxFocalLossFunction softmax_focal_loss SoftmaxFocalLoss"
    ),
    "furthest_point_sample": (
        "FurthestPointSampling FurthestPointSamplingWithDist furthest_point_sample "
        "furthest_point_sample_with_dist"
    ),
    "fused_bias_leakyrelu": (
        "FusedBiasLeakyReLUFunctionBackward FusedBiasLeakyReLUFunction FusedBiasLeakyReLU "
        "fused_bias_leakyrelu bias_leakyrelu_ref"
    ),
    "gather_points": "GatherPoints gather_points",
    "group_points": "QueryAndGroup GroupAll GroupingOperation grouping_operation",
    "info": "get_compiler_version get_compiling_cuda_version",
    "iou3d": (
        "boxes_overlap_bev boxes_iou3d nms3d nms3d_normal boxes_iou_bev nms_bev nms_normal_bev"
    ),
    "knn": "KNN knn",
    "masked_conv": "MaskedConv2dFunction masked_conv2d MaskedConv2d",
    "merge_cells": "BaseMergeCell SumCell ConcatCell GlobalPoolingCell",
    "min_area_polygons": "min_area_polygons",
    "modulated_deform_conv": (
        "ModulatedDeformConv2dFunction modulated_deform_conv2d ModulatedDeformConv2d "
        "ModulatedDeformConv2dPack"
    ),
    "multi_scale_deform_attn": (
        "MultiScaleDeformableAttnFunction multi_scale_deformable_attn_pytorch "
        "MultiScaleDeformableAttention"
    ),
    "nms": (
        "NMSop SoftNMSop array_like_type nms soft_nms batched_nms nms_match nms_rotated nms_quadri"
    ),
    "pixel_group": "pixel_group",
    "point_sample": (
        "bilinear_grid_sample normalize denormalize generate_grid "
        "rel_roi_point_to_abs_img_point get_shape_from_feature_map "
        "abs_img_point_to_rel_img_point rel_roi_point_to_rel_img_point point_sample "
        "SimpleRoIAlign"
    ),
    "points_in_boxes": "points_in_boxes_part points_in_boxes_cpu points_in_boxes_all",
    "points_in_polygons": "points_in_polygons",
    "points_sampler": (
        "calc_square_dist get_sampler_cls PointsSampler DFPSSampler FFPSSampler FSSampler"
    ),
    "prroi_pool": "PrRoIPoolFunction prroi_pool PrRoIPool",
    "psa_mask": "PSAMaskFunction psa_mask PSAMask",
    "riroi_align_rotated": "RiRoIAlignRotatedFunction riroi_align_rotated RiRoIAlignRotated",
    "roi_align": "RoIAlignFunction roi_align RoIAlign",
    "roi_align_rotated": "RoIAlignRotatedFunction roi_align_rotated RoIAlignRotated",
    "roi_pool": "RoIPoolFunction roi_pool RoIPool",
    "roiaware_pool3d": "RoIAwarePool3d RoIAwarePool3dFunction",
    "roipoint_pool3d": "RoIPointPool3d RoIPointPool3dFunction",
    "rotated_feature_align": "RotatedFeatureAlignFunction rotated_feature_align",
    "saconv": "SAConv2d",
    "scatter_points": "dynamic_scatter DynamicScatter",
    "sparse_conv": (
        "SparseConvolution SparseConv2d SparseConv3d SparseConv4d SparseConvTranspose2d "
        "SparseConvTranspose3d SparseInverseConv2d SparseInverseConv3d SubMConv2d SubMConv3d "
        "SubMConv4d"
    ),
    "sparse_functional": (
        "SparseConvFunction SparseInverseConvFunction SubMConvFunction SparseMaxPoolFunction "
        "indice_conv indice_inverse_conv indice_subm_conv indice_maxpool"
    ),
    "sparse_modules": (
        "is_spconv_module is_sparse_conv SparseModule SparseSequential ToDense RemoveGrid"
    ),
    "sparse_ops": (
        "get_conv_output_size get_deconv_output_size get_indice_pairs indice_conv "
        "fused_indice_conv indice_conv_backward indice_maxpool indice_maxpool_backward"
    ),
    "sparse_pool": "SparseMaxPool SparseMaxPool2d SparseMaxPool3d",
    "sparse_structure": "scatter_nd SparseConvTensor",
    "sync_bn": "SyncBatchNormFunction SyncBatchNorm",
    "three_interpolate": "ThreeInterpolate three_interpolate",
    "three_nn": "ThreeNN three_nn",
    "tin_shift": "TINShiftFunction tin_shift TINShift",
    "upfirdn2d": "upfirdn2d",
    "voxelize": "voxelization Voxelization",
}
"""Names by module, without ``mmcv.ops`` before it."""
