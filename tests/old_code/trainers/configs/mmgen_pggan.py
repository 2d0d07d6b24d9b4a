by_scale = {"4": 2, "8": 2}
model = dict(
    generator=dict(out_scale=8, noise_size=8, base_channels=32, max_channels=8),
    discriminator=dict(in_scale=8, base_channels=32, max_channels=8),
)
train_cfg = dict(
    nkimgs_per_scale={"_delete_": True, "4": 0.004, "8": 0.016},
    transition_kimgs=0.004,
)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    train=dict(
        imgs_roots={"_delete_": True, "8": "data/train"},
        gpu_samples_base=2,
        gpu_samples_per_scale={"_delete_": True, **by_scale},
        pipeline=[
            dict(type="LoadImageFromFile", key="real_img", io_backend="disk"),
            dict(type="Resize", keys=["real_img"], scale=(8, 8)),
            dict(type="Flip", keys=["real_img"], direction="horizontal"),
            dict(
                type="Normalize",
                keys=["real_img"],
                mean=[127.5] * 3,
                std=[127.5] * 3,
                to_rgb=False,
            ),
            dict(type="ImageToTensor", keys=["real_img"]),
            dict(type="Collect", keys=["real_img"], meta_keys=["real_img_path"]),
        ],
    ),
)
custom_hooks = [
    dict(type="VisualizeUnconditionalSamples", output_dir="training_samples", interval=4),
    dict(type="PGGANFetchDataHook", interval=1),
    dict(
        type="ExponentialMovingAverageHook",
        module_keys=("generator_ema",),
        interval=1,
        priority="VERY_HIGH",
    ),
]
total_iters = 8
checkpoint_config = dict(interval=4)
log_config = dict(interval=1, hooks=[dict(type="TextLoggerHook")])
gpu_ids = [0]
