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
model = dict(cxt_encoder=dict(norm_cfg=dict(type="BN")), decoder=dict(iters=2))
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="ColorJitter", brightness=0.4, contrast=0.4, saturation=0.4, hue=0.2),
    dict(type="Normalize", mean=[127.5] * 3, std=[127.5] * 3, to_rgb=False),
    dict(type="RandomFlip", prob=0.5, direction="horizontal"),
    dict(type="Validation", max_flow=1000.0),
    dict(type="DefaultFormatBundle"),
    dict(type="Collect", keys=["imgs", "flow_gt", "valid"], meta_keys=seen),
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
lr_config = dict(total_steps=9)
runner = dict(max_iters=8)
checkpoint_config = dict(interval=4)
evaluation = dict(interval=4)
log_config = dict(interval=2)
