model = dict(
    generator=dict(mid_channels=4, num_blocks=2),
    discriminator=dict(mid_channels=2),
    perceptual_loss=None,
)
keys = ["lq", "gt"]
load = [dict(type="LoadImageFromFile", io_backend="disk", key=key) for key in keys]
ready = [
    dict(type="RescaleToZeroOne", keys=keys),
    dict(type="Normalize", keys=keys, mean=[0.0] * 3, std=[1.0] * 3, to_rgb=True),
]
turned = [
    dict(type="Flip", keys=keys, flip_ratio=0.5, direction="horizontal"),
    dict(type="RandomTransposeHW", keys=keys, transpose_ratio=0.5),
]
collected = [
    dict(type="Collect", keys=keys, meta_keys=["lq_path", "gt_path"]),
    dict(type="ImageToTensor", keys=keys),
]
drawn = dict(
    lq_folder="data/small/test",
    gt_folder="data/large/test",
    pipeline=[*load, *ready, *collected],
)
data = dict(
    workers_per_gpu=0,
    train_dataloader=dict(samples_per_gpu=2, persistent_workers=False),
    val_dataloader=dict(persistent_workers=False),
    test_dataloader=dict(persistent_workers=False),
    train=dict(
        times=2,
        dataset=dict(
            lq_folder="data/small/train",
            gt_folder="data/large/train",
            ann_file="data/train.txt",
            pipeline=[*load, *ready, *turned, *collected],
        ),
    ),
    val=drawn,
    test=drawn,
)
total_iters = 8
lr_config = dict(step=[4])
checkpoint_config = dict(interval=4)
evaluation = dict(_delete_=True, interval=4, save_image=True)
log_config = dict(interval=2, hooks=[dict(type="TextLoggerHook", by_epoch=False)])
load_from = None
