seen = [
    "img_fields",
    "ann_fields",
    "filename1",
    "filename2",
    "ori_filename1",
    "ori_filename2",
    "filename_flow",
    "ori_filename_flow",
    "ori_shape",
    "img_shape",
    "img_norm_cfg",
]
picture = dict(type="Normalize", mean=[0.0] * 3, std=[255.0] * 3, to_rgb=False)
load = [dict(type="LoadImageFromFile"), dict(type="LoadAnnotations")]
train_pipeline = [
    *load,
    dict(type="ColorJitter", brightness=0.5, contrast=0.5, saturation=0.5, hue=0.5),
    picture,
    dict(type="GaussianNoise", sigma_range=(0, 0.04), clamp_range=(0.0, 1.0)),
    dict(type="RandomFlip", prob=0.5, direction="horizontal"),
    dict(type="DefaultFormatBundle"),
    dict(type="Collect", keys=["imgs", "flow_gt"], meta_keys=seen),
]
drawn = dict(data_root="data", split_file="data/split.txt")
alone = dict(workers_per_gpu=0, persistent_workers=False)
data = dict(
    train_dataloader=dict(samples_per_gpu=2, **alone),
    val_dataloader=alone,
    test_dataloader=dict(workers_per_gpu=0),
    train=dict(pipeline=train_pipeline, **drawn),
    val=drawn,
    test=drawn,
)
runner = dict(max_iters=8)
checkpoint_config = dict(interval=4)
evaluation = dict(interval=4)
log_config = dict(interval=2)
