last = 1
side = (64, 64)
model = dict(
    input_size=side,
    random_size_range=(2, 2),
    random_size_interval=2,
    backbone=dict(deepen_factor=0.33, widen_factor=0.125),
    neck=dict(in_channels=[32, 64, 128], out_channels=16),
    bbox_head=dict(num_classes=2, in_channels=16, feat_channels=16),
)
train_pipeline = [
    dict(type="Mosaic", img_scale=side, pad_val=114.0),
    dict(type="RandomAffine", scaling_ratio_range=(0.5, 1.5), border=(-32, -32)),
    dict(type="MixUp", img_scale=side, ratio_range=(0.8, 1.6), pad_val=114.0),
    dict(type="YOLOXHSVRandomAug"),
    dict(type="RandomFlip", flip_ratio=0.5),
    dict(type="Resize", img_scale=side, keep_ratio=True),
    dict(type="Pad", pad_to_square=True, pad_val=dict(img=(114.0, 114.0, 114.0))),
    dict(type="FilterAnnotations", min_gt_bbox_wh=(1, 1), keep_empty=False),
    dict(type="DefaultFormatBundle"),
    dict(type="Collect", keys=["img", "gt_bboxes", "gt_labels"]),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="MultiScaleFlipAug",
        img_scale=side,
        flip=False,
        transforms=[
            dict(type="Resize", keep_ratio=True),
            dict(type="RandomFlip"),
            dict(type="Pad", pad_to_square=True, pad_val=dict(img=(114.0, 114.0, 114.0))),
            dict(type="DefaultFormatBundle"),
            dict(type="Collect", keys=["img"]),
        ],
    ),
]
classes = ["person", "cat"]
val = dict(
    classes=classes,
    ann_file="data/val.json",
    img_prefix="data/val/",
    pipeline=test_pipeline,
)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    persistent_workers=False,
    train=dict(
        dataset=dict(classes=classes, ann_file="data/train.json", img_prefix="data/train/"),
        pipeline=train_pipeline,
    ),
    val=val,
    test=val,
)
lr_config = dict(warmup_iters=1, num_last_epochs=last)
runner = dict(max_epochs=3)
custom_hooks = [
    dict(type="YOLOXModeSwitchHook", num_last_epochs=last, priority=48),
    dict(type="SyncNormHook", num_last_epochs=last, interval=1, priority=48),
    dict(type="ExpMomentumEMAHook", momentum=0.01, priority=49),
]
checkpoint_config = dict(interval=1)
evaluation = dict(interval=2, dynamic_intervals=[(2, 1)], metric="bbox", save_best="auto")
log_config = dict(interval=1)
