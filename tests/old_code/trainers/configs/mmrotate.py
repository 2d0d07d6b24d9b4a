model = dict(
    backbone=dict(depth=18, init_cfg=None),
    neck=dict(in_channels=[64, 128, 256, 512], out_channels=16),
    rpn_head=dict(in_channels=16, feat_channels=16, anchor_generator=dict(scales=[2, 4])),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=16),
        bbox_head=dict(in_channels=16, fc_out_channels=32),
    ),
    train_cfg=dict(rcnn=dict(sampler=dict(num=16))),
)
picture = dict(type="Normalize", mean=[125.0] * 3, std=[60.0] * 3, to_rgb=True)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="RResize", img_scale=(64, 64)),
    dict(type="RRandomFlip", flip_ratio=0.5, version="le90"),
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
            dict(type="RResize"),
            picture,
            dict(type="Pad", size_divisor=32),
            dict(type="DefaultFormatBundle"),
            dict(type="Collect", keys=["img"]),
        ],
    ),
]
train = dict(ann_file="data/train/labels", img_prefix="data/train/images")
val = dict(ann_file="data/val/labels", img_prefix="data/val/images")
data = dict(
    samples_per_gpu=2,
    train_dataloader=dict(workers_per_gpu=0),
    val_dataloader=dict(workers_per_gpu=0),
    test_dataloader=dict(workers_per_gpu=0),
    train=dict(pipeline=train_pipeline, **train),
    val=dict(pipeline=test_pipeline, **val),
    test=dict(pipeline=test_pipeline, **val),
)
lr_config = dict(warmup_iters=3, step=[1])
runner = dict(max_epochs=2)
log_config = dict(interval=1)
evaluation = dict(interval=2, nproc=1, save_best="auto")
