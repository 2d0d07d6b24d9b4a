picture = [
    dict(type="LoadImageFromFile", key="real_img", io_backend="disk"),
    dict(type="Resize", keys=["real_img"], scale=(16, 16)),
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
    _delete_=True,
    samples_per_gpu=2,
    workers_per_gpu=0,
    persistent_workers=False,
    train=dict(type="UnconditionalImageDataset", imgs_root="data/train", pipeline=picture),
)
model = dict(
    num_timesteps=20,
    denoising=dict(
        image_size=16,
        base_channels=32,
        resblocks_per_downsample=1,
        channels_cfg=[1, 2],
        attention_res=[8],
        num_heads=1,
    ),
)
train_cfg = dict(real_img_key="real_img")
optimizer = dict(denoising=dict(lr=1e-3))
custom_hooks = [
    dict(
        type="MMGenVisualizationHook",
        output_dir="training_samples",
        res_name_list=["real_imgs", "x_0_pred", "x_t", "x_t_1"],
        padding=1,
        interval=4,
    ),
    dict(
        type="ExponentialMovingAverageHook",
        module_keys=("denoising_ema"),
        interval=1,
        start_iter=2,
        interp_cfg=dict(momentum=0.9),
        priority="VERY_HIGH",
    ),
]
total_iters = 8
checkpoint_config = dict(interval=4)
log_config = dict(interval=1, hooks=[dict(type="TextLoggerHook")])
gpu_ids = [0]
