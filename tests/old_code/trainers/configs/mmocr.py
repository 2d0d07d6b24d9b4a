drawn = dict(
    type="OCRDataset",
    loader=dict(
        type="AnnFileLoader",
        repeat=1,
        file_format="txt",
        file_storage_backend="disk",
        parser=dict(
            type="LineStrParser", keys=["filename", "text"], keys_idx=[0, 1], separator=" "
        ),
    ),
    pipeline=None,
)
val = dict(img_prefix="data/val", ann_file="data/val.txt", test_mode=True, **drawn)
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    train_dataloader=dict(persistent_workers=False),
    val_dataloader=dict(persistent_workers=False),
    test_dataloader=dict(persistent_workers=False),
    train=dict(
        datasets=[
            dict(img_prefix="data/train", ann_file="data/train.txt", test_mode=False, **drawn)
        ]
    ),
    val=dict(datasets=[val]),
    test=dict(datasets=[val]),
)
runner = dict(max_epochs=2)
log_config = dict(interval=1)
