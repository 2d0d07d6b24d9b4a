gpu_ids = [0]
slow = dict(depth=18, base_channels=16)
model = dict(
    backbone=dict(
        resample_rate=4,
        speed_ratio=4,
        slow_pathway=dict(**slow),
        fast_pathway=dict(depth=18, base_channels=2),
    ),
    cls_head=dict(in_channels=144, num_classes=2),
)
sample = dict(type="SampleFrames", clip_len=8, frame_interval=1, num_clips=1)
ready = [
    dict(type="Normalize", mean=[125.0] * 3, std=[60.0] * 3, to_bgr=False),
    dict(type="FormatShape", input_format="NCTHW"),
    dict(type="Collect", keys=["imgs", "label"], meta_keys=[]),
]
train_pipeline = [
    sample,
    dict(type="RawFrameDecode"),
    dict(type="RandomResizedCrop"),
    dict(type="Resize", scale=(32, 32), keep_ratio=False),
    dict(type="Flip", flip_ratio=0.5),
    *ready,
    dict(type="ToTensor", keys=["imgs", "label"]),
]
test_pipeline = [
    dict(test_mode=True, **sample),
    dict(type="RawFrameDecode"),
    dict(type="CenterCrop", crop_size=32),
    *ready,
    dict(type="ToTensor", keys=["imgs"]),
]
drawn = dict(filename_tmpl="img_{:05}.png")
train = dict(ann_file="data/train.txt", data_prefix="data/train", **drawn)
val = dict(ann_file="data/val.txt", data_prefix="data/val", **drawn)
data = dict(
    videos_per_gpu=2,
    workers_per_gpu=0,
    train=dict(pipeline=train_pipeline, **train),
    val=dict(pipeline=test_pipeline, **val),
    test=dict(pipeline=test_pipeline, **val),
)
lr_config = dict(warmup_iters=1)
total_epochs = 2
checkpoint_config = dict(interval=1)
evaluation = dict(interval=1)
log_config = dict(interval=1)
