def crop(size):
    return [
        dict(type="RandomResizedCrop", size=size, scale=(0.2, 1.0)),
        dict(type="RandomHorizontalFlip"),
        dict(type="ToTensor"),
        dict(type="Normalize", mean=[0.5] * 3, std=[0.25] * 3),
    ]


model = dict(
    backbone=dict(depth=18, norm_cfg=dict(type="BN")),
    neck=dict(in_channels=512, hid_channels=16, out_channels=8),
    head=dict(feat_dim=8, num_prototypes=6),
)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    train=dict(
        data_source=dict(data_prefix="data/train", ann_file="data/train.txt"),
        pipelines=[crop(32), crop(16)],
    ),
)
persistent_workers = False
custom_hooks = [
    dict(type="SwAVHook", priority="VERY_HIGH", batch_size=2, feat_dim=8, queue_length=0)
]
optimizer_config = dict(frozen_layers_cfg=dict(prototypes=2))
runner = dict(max_epochs=2)
checkpoint_config = dict(interval=1)
log_config = dict(interval=1)
