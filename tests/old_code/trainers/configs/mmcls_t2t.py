model = dict(
    backbone=dict(
        img_size=32,
        embed_dims=32,
        t2t_cfg=dict(token_dims=8),
        num_layers=2,
        layer_cfgs=dict(num_heads=2, feedforward_channels=64),
    ),
    head=dict(num_classes=2, in_channels=32, topk=(1,)),
    train_cfg=dict(
        augments=[
            dict(type="BatchMixup", alpha=0.8, prob=0.5, num_classes=2),
            dict(type="BatchCutMix", alpha=1.0, prob=0.5, num_classes=2),
        ]
    ),
)
picture = [
    dict(type="LoadImageFromFile"),
    dict(type="Normalize", mean=[125.0] * 3, std=[60.0] * 3, to_rgb=True),
    dict(type="ImageToTensor", keys=["img"]),
]
labelled = [
    dict(type="ToTensor", keys=["gt_label"]),
    dict(type="Collect", keys=["img", "gt_label"]),
]
collected = [dict(type="Collect", keys=["img"])]
listed = dict(_delete_=True, type="ImageNet", classes=["a", "b"])
val = dict(data_prefix="data/val", ann_file="data/val.txt", pipeline=picture + collected, **listed)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    persistent_workers=False,
    train=dict(
        data_prefix="data/train",
        ann_file="data/train.txt",
        pipeline=picture + labelled,
        **listed,
    ),
    val=val,
    test=val,
)
lr_config = dict(warmup_iters=1, cool_down_time=1)
custom_hooks = [dict(type="EMAHook", momentum=0.01, priority="ABOVE_NORMAL")]
runner = dict(max_epochs=3)
evaluation = dict(interval=1, metric="accuracy", metric_options=dict(topk=(1,)))
checkpoint_config = dict(interval=1)
log_config = dict(interval=1)
