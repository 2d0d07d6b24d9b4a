picture = [
    dict(type="LoadImageFromFile"),
    dict(type="Normalize", mean=[125.0] * 3, std=[60.0] * 3, to_rgb=True),
    dict(type="ImageToTensor", keys=["img"]),
]
labelled = [
    dict(type="ToTensor", keys=["gt_label"]),
    dict(type="Collect", keys=["img", "gt_label"], meta_keys=()),
]
collected = [dict(type="Collect", keys=["img"], meta_keys=())]
listed = dict(type="ImageNet", classes=["a", "b"])
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    persistent_workers=False,
    train=dict(
        data_prefix="data/train",
        ann_file="data/train.txt",
        pipeline=picture + labelled,
        **listed,
    ),
    val=dict(
        data_prefix="data/val",
        ann_file="data/val.txt",
        pipeline=picture + collected,
        **listed,
    ),
)
norm = dict(type="BN", affine=False)
operations = dict(
    zero=dict(type="DartsZero"),
    skip=dict(type="DartsSkipConnect", norm_cfg=norm),
    pool=dict(type="DartsPoolBN", pool_type="max", norm_cfg=norm),
    conv=dict(type="DartsSepConv", kernel_size=3, norm_cfg=norm),
)
algorithm = dict(
    type="Darts",
    unroll=True,
    architecture=dict(
        type="MMClsArchitecture",
        model=dict(
            type="mmcls.ImageClassifier",
            backbone=dict(
                type="DartsBackbone",
                in_channels=3,
                base_channels=4,
                num_layers=3,
                num_nodes=2,
                out_indices=(2,),
                norm_cfg=norm,
            ),
            neck=dict(type="GlobalAveragePooling"),
            head=dict(
                type="LinearClsHead",
                num_classes=2,
                in_channels=32,
                loss=dict(type="CrossEntropyLoss", loss_weight=1.0),
                topk=(1,),
            ),
        ),
    ),
    mutator=dict(
        type="DartsMutator",
        placeholder_mapping=dict(
            node=dict(type="DifferentiableOP", with_arch_param=True, choices=operations),
            node_edge=dict(type="DifferentiableEdge", with_arch_param=False, num_chosen=2),
        ),
    ),
    retraining=False,
)
optimizer = dict(
    architecture=dict(type="SGD", lr=0.025, momentum=0.9, weight_decay=3e-4),
    mutator=dict(type="Adam", lr=3e-4, weight_decay=1e-3),
)
optimizer_config = None
lr_config = dict(policy="CosineAnnealing", freeze_optimizers=["mutator"], min_lr=1e-3)
runner = dict(type="MultiLoaderEpochBasedRunner", max_epochs=2)
checkpoint_config = dict(interval=1)
custom_hooks = [dict(type="SearchSubnetHook", interval=1)]
evaluation = dict(interval=1, metric="accuracy", metric_options=dict(topk=(1,)))
log_config = dict(interval=1, hooks=[dict(type="TextLoggerHook")])
load_from = None
workflow = [("train", 1)]
