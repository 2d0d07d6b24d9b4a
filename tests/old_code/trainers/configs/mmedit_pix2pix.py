model = dict(
    generator=dict(num_down=5, base_channels=4), discriminator=dict(base_channels=4, num_conv=2)
)
keys = ["img_a", "img_b"]
load = dict(type="LoadPairedImageFromFile", io_backend="disk", key="pair", flag="color")
ready = [
    dict(type="RescaleToZeroOne", keys=keys),
    dict(type="Normalize", keys=keys, to_rgb=True, mean=[0.5] * 3, std=[0.5] * 3),
    dict(type="ImageToTensor", keys=keys),
    dict(type="Collect", keys=keys, meta_keys=["img_a_path", "img_b_path"]),
]
larger = dict(type="Resize", keys=keys, scale=(36, 36), interpolation="bicubic")
cropped = dict(type="FixedCrop", keys=keys, crop_size=(32, 32))
turned = dict(type="Flip", keys=keys, direction="horizontal")
drawn = dict(dataroot="data/paired")
data = dict(
    samples_per_gpu=1,
    workers_per_gpu=0,
    train_dataloader=dict(persistent_workers=False),
    val_dataloader=dict(persistent_workers=False),
    test_dataloader=dict(persistent_workers=False),
    train=dict(pipeline=[load, larger, cropped, turned, *ready], **drawn),
    val=dict(pipeline=[load, *ready], **drawn),
    test=dict(pipeline=[load, *ready], **drawn),
)
total_iters = 8
checkpoint_config = dict(interval=4)
evaluation = dict(interval=4)
log_config = dict(interval=2)
