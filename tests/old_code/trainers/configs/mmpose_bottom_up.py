model = dict(
    pretrained=None,
    backbone=dict(depth=18),
    keypoint_head=dict(in_channels=512, num_deconv_layers=3, num_deconv_filters=(8, 8, 8)),
    test_cfg=dict(max_num_people=3),
)
data_cfg = dict(image_size=64, base_size=32, heatmap_size=[16])
ready = [
    dict(type="ToTensor"),
    dict(type="NormalizeTensor", mean=[0.5] * 3, std=[0.25] * 3),
]
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="BottomUpRandomAffine",
        rot_factor=30,
        scale_factor=[0.75, 1.5],
        scale_type="short",
        trans_factor=10,
    ),
    dict(type="BottomUpRandomFlip", flip_prob=0.5),
    *ready,
    dict(type="BottomUpGenerateTarget", sigma=2, max_num_people=3),
    dict(type="Collect", keys=["img", "joints", "targets", "masks"], meta_keys=[]),
]
train = dict(ann_file="data/train.json", img_prefix="data/train/", data_cfg=data_cfg)
val = dict(ann_file="data/val.json", img_prefix="data/val/", data_cfg=data_cfg)
data = dict(
    workers_per_gpu=0,
    train_dataloader=dict(samples_per_gpu=2),
    train=dict(pipeline=train_pipeline, **train),
    val=val,
    test=val,
)
lr_config = dict(warmup_iters=3, step=[1])
total_epochs = 2
checkpoint_config = dict(interval=1)
evaluation = dict(interval=1)
log_config = dict(interval=1)
