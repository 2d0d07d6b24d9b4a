model = dict(backbone=dict(depth=18, norm_cfg=dict(type="BN")), head=dict(in_channels=512))
pipeline = [
    dict(type="RandomResizedCrop", size=32),
    dict(type="RandomHorizontalFlip"),
    dict(type="ToTensor"),
    dict(type="Normalize", mean=[0.5] * 3, std=[0.25] * 3),
]
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    train=dict(
        data_source=dict(data_prefix="data/train", ann_file="data/train.txt"), pipeline=pipeline
    ),
    val=dict(data_source=dict(data_prefix="data/val", ann_file="data/val.txt"), pipeline=pipeline),
)
persistent_workers = False
optimizer = dict(lr=0.02)
lr_config = dict(step=[1], warmup_iters=1)
runner = dict(max_epochs=2)
checkpoint_config = dict(interval=1)
log_config = dict(interval=1)
