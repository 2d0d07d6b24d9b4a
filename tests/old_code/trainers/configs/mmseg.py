normal = dict(type="BN", requires_grad=True)
model = dict(
    pretrained=None,
    backbone=dict(norm_cfg=normal),
    decode_head=dict(num_classes=2, channels=16, norm_cfg=normal),
    auxiliary_head=dict(num_classes=2, channels=16, norm_cfg=normal),
)
picture = dict(type="Normalize", mean=[125.0] * 3, std=[60.0] * 3, to_rgb=True)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="Resize", img_scale=(64, 64), ratio_range=(0.8, 1.5)),
    dict(type="RandomCrop", crop_size=(48, 48), cat_max_ratio=0.95),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PhotoMetricDistortion"),
    picture,
    dict(type="Pad", size=(48, 48), pad_val=0, seg_pad_val=255),
    dict(type="DefaultFormatBundle"),
    dict(type="Collect", keys=["img", "gt_semantic_seg"]),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="MultiScaleFlipAug",
        img_scale=(64, 64),
        flip=False,
        transforms=[
            dict(type="Resize", keep_ratio=True),
            dict(type="RandomFlip"),
            picture,
            dict(type="ImageToTensor", keys=["img"]),
            dict(type="Collect", keys=["img"]),
        ],
    ),
]
drawn = dict(
    _delete_=True,
    type="CustomDataset",
    data_root="data",
    img_suffix=".png",
    classes=["dark", "bright"],
    palette=[[0, 0, 0], [255, 255, 255]],
)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    train_dataloader=dict(persistent_workers=False),
    val_dataloader=dict(persistent_workers=False),
    test_dataloader=dict(persistent_workers=False),
    train=dict(img_dir="images/train", ann_dir="masks/train", pipeline=train_pipeline, **drawn),
    val=dict(img_dir="images/val", ann_dir="masks/val", pipeline=test_pipeline, **drawn),
    test=dict(img_dir="images/val", ann_dir="masks/val", pipeline=test_pipeline, **drawn),
)
runner = dict(max_iters=8)
checkpoint_config = dict(interval=4)
evaluation = dict(interval=4)
log_config = dict(interval=2)
