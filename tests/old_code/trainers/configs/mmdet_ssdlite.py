classes = ["person", "cat"]
model = dict(bbox_head=dict(num_classes=2))
train = dict(ann_file="data/train.json", img_prefix="data/train/", classes=classes)
val = dict(ann_file="data/val.json", img_prefix="data/val/", classes=classes)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    persistent_workers=False,
    train=dict(times=1, dataset=train),
    val=val,
    test=val,
)
lr_config = dict(warmup_iters=3)
custom_hooks = [
    dict(type="NumClassCheckHook"),
    dict(type="CheckInvalidLossHook", interval=2, priority="VERY_LOW"),
]
runner = dict(max_epochs=2)
checkpoint_config = dict(interval=1)
evaluation = dict(interval=1)
log_config = dict(interval=1)
