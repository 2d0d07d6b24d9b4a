picture = [
    dict(type="Normalize", mean=[125.0] * 3, std=[60.0] * 3, to_rgb=True),
    dict(type="ImageToTensor", keys=["img"]),
]
labelled = [
    dict(type="ToTensor", keys=["gt_label"]),
    dict(type="Collect", keys=["img", "gt_label"]),
]
collected = [dict(type="Collect", keys=["img"])]
load = [dict(type="LoadImageFromFile")]
flip = [dict(type="RandomCrop", size=32, padding=4), dict(type="RandomFlip", flip_prob=0.5)]
listed = dict(_delete_=True, type="ImageNet", classes=["a", "b"])
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    persistent_workers=False,
    train=dict(
        data_prefix="data/train",
        ann_file="data/train.txt",
        pipeline=load + flip + picture + labelled,
        **listed,
    ),
    val=dict(
        data_prefix="data/val",
        ann_file="data/val.txt",
        pipeline=load + picture + collected,
        **listed,
    ),
    test=dict(
        data_prefix="data/val",
        ann_file="data/val.txt",
        pipeline=load + picture + collected,
        **listed,
    ),
)
model = dict(
    backbone=dict(
        stem_channels=8,
        base_channels=8,
        num_stages=1,
        strides=(1,),
        dilations=(1,),
        out_indices=(0,),
    ),
    head=dict(num_classes=2, in_channels=8, topk=(1,)),
)
evaluation = dict(interval=1, metric="accuracy", metric_options=dict(topk=(1,)), save_best="auto")
runner = dict(max_epochs=2)
lr_config = dict(policy="step", step=[1])
log_config = dict(interval=1)
workflow = [("train", 1), ("val", 1)]
