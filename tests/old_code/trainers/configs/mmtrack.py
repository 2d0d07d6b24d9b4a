model = dict(
    detector=dict(
        backbone=dict(depth=18, init_cfg=None),
        neck=dict(in_channels=[512], out_channels=16),
        rpn_head=dict(in_channels=16, feat_channels=16, anchor_generator=dict(scales=[0.5, 1.0])),
        roi_head=dict(
            bbox_roi_extractor=dict(out_channels=16),
            bbox_head=dict(num_classes=1, in_channels=16, fc_out_channels=32),
        ),
        train_cfg=dict(rcnn=dict(sampler=dict(num=16))),
    ),
    motion=dict(init_cfg=None),
    test_cfg=dict(key_frame_interval=2),
)
picture = dict(mean=[125.0] * 3, std=[60.0] * 3, to_rgb=True)
train_pipeline = [
    dict(type="LoadMultiImagesFromFile"),
    dict(type="SeqLoadAnnotations", with_bbox=True, with_track=True),
    dict(type="SeqResize", img_scale=(64, 64), keep_ratio=True),
    dict(type="SeqRandomFlip", share_params=True, flip_ratio=0.5),
    dict(type="SeqNormalize", **picture),
    dict(type="SeqPad", size_divisor=16),
    dict(type="VideoCollect", keys=["img", "gt_bboxes", "gt_labels", "gt_instance_ids"]),
    dict(type="ConcatVideoReferences"),
    dict(type="SeqDefaultFormatBundle", ref_prefix="ref"),
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
            dict(type="Normalize", **picture),
            dict(type="Pad", size_divisor=16),
            dict(type="ImageToTensor", keys=["img"]),
            dict(type="VideoCollect", keys=["img"]),
        ],
    ),
]
before = dict(num_ref_imgs=1, frame_range=3, filter_key_img=False, method="uniform")
val = dict(ann_file="data/val.json", img_prefix="data/val", pipeline=test_pipeline)
data = dict(
    workers_per_gpu=0,
    persistent_workers=False,
    train=[
        dict(
            type="ImagenetVIDDataset",
            ann_file="data/train.json",
            img_prefix="data/train",
            ref_img_sampler=before,
            pipeline=train_pipeline,
        )
    ],
    val=val,
    test=val,
)
lr_config = dict(warmup_iters=3, step=[1])
total_epochs = 2
log_config = dict(interval=1)
evaluation = dict(interval=1)
