picture = [
    dict(type="LoadImageFromFile", key="real_img", io_backend="disk"),
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
]
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    persistent_workers=False,
    train=dict(imgs_root="data/train", pipeline=picture),
)
model = dict(
    generator=dict(output_scale=32, base_channels=16, noise_size=4),
    discriminator=dict(input_scale=32, base_channels=4),
)
total_iters = 8
checkpoint_config = dict(interval=4)
custom_hooks = [
    dict(type="VisualizeUnconditionalSamples", output_dir="training_samples", interval=4)
]
log_config = dict(interval=1, hooks=[dict(type="TextLoggerHook")])
