model = dict(
    pretrained=None,
    backbone=dict(depth=18),
    keypoint_head=dict(
        in_channels=512, num_deconv_layers=1, num_deconv_filters=(8,), num_deconv_kernels=(4,)
    ),
)
data_cfg = dict(image_size=[64, 64], heatmap_size=[4, 4], use_gt_bbox=True, bbox_file=None)
places = ["image_file", "center", "scale", "rotation", "flip_pairs"]
ready = [
    dict(type="ToTensor"),
    dict(type="NormalizeTensor", mean=[0.5] * 3, std=[0.25] * 3),
]
load = [dict(type="LoadImageFromFile"), dict(type="TopDownGetBboxCenterScale", padding=1.25)]
train_pipeline = [
    *load,
    dict(type="TopDownRandomFlip", flip_prob=0.5),
    dict(type="TopDownGetRandomScaleRotation", rot_factor=40, scale_factor=0.5),
    dict(type="TopDownAffine"),
    *ready,
    dict(type="TopDownGenerateTarget", sigma=2),
    dict(
        type="Collect",
        keys=["img", "target", "target_weight"],
        meta_keys=[*places, "joints_3d", "joints_3d_visible", "bbox_score"],
    ),
]
test_pipeline = [
    *load,
    dict(type="TopDownAffine"),
    *ready,
    dict(type="Collect", keys=["img"], meta_keys=[*places, "bbox_id"]),
]
train = dict(ann_file="data/train.json", img_prefix="data/train/", data_cfg=data_cfg)
val = dict(ann_file="data/val.json", img_prefix="data/val/", data_cfg=data_cfg)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    val_dataloader=dict(samples_per_gpu=2),
    test_dataloader=dict(samples_per_gpu=2),
    train=dict(pipeline=train_pipeline, **train),
    val=dict(pipeline=test_pipeline, **val),
    test=dict(pipeline=test_pipeline, **val),
)
lr_config = dict(warmup_iters=3, step=[1])
total_epochs = 2
checkpoint_config = dict(interval=1)
evaluation = dict(interval=1)
log_config = dict(interval=1)
