model = dict(
    backbone=dict(init_cfg=None),
    neck=dict(out_channels=16),
    bbox_head=dict(num_classes=2, in_channels=16, feat_channels=16, stacked_convs=1),
)
picture = dict(type="Normalize", mean=[125.0] * 3, std=[60.0] * 3, to_rgb=True)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="Resize", img_scale=(64, 64), keep_ratio=True),
    dict(type="RandomFlip", flip_ratio=0.5),
    picture,
    dict(type="Pad", size_divisor=32),
    dict(type="DefaultFormatBundle"),
    dict(type="Collect", keys=["img", "gt_bboxes", "gt_labels"]),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="MultiScaleFlipAug",
        img_scale=(64, 64),
        flip=False,
        transforms=[
            dict(type="Resize", keep_ratio=True),
            dict(type="RandomFlip"),
            picture,
            dict(type="Pad", size_divisor=32),
            dict(type="ImageToTensor", keys=["img"]),
            dict(type="Collect", keys=["img"]),
        ],
    ),
]
drawn = dict(type="CocoDataset", classes=["person", "cat"])
train = dict(ann_file="data/train.json", img_prefix="data/train/", **drawn)
val = dict(ann_file="data/val.json", img_prefix="data/val/", **drawn)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    persistent_workers=False,
    train=dict(pipeline=train_pipeline, **train),
    val=dict(pipeline=test_pipeline, **val),
    test=dict(pipeline=test_pipeline, **val),
)
lr_config = dict(warmup_iters=3, step=[1])
runner = dict(max_epochs=2)
log_config = dict(interval=1)
evaluation = dict(interval=1, metric="bbox", save_best="auto")
custom_hooks = [dict(type="NumClassCheckHook"), dict(type="ExpMomentumEMAHook", priority=49)]
