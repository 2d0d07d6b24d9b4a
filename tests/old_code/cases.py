"""Which hooks of real packages are run, how, and which are not and why."""

from __future__ import annotations

from typing import Any, NamedTuple

DET, CLS, SELF = "mmdet/core/hook", "mmcls/core/hook", "mmselfsup/core/hooks"


class Case(NamedTuple):
    """One hook class, and the run that it is tried in."""

    file: str
    name: str
    arguments: dict[str, Any]
    by_epoch: bool = True
    steps: bool = False  # it does backward and step itself
    val: bool = False
    priority: Any = "NORMAL"


CASES = {
    f"{case.file.partition('/')[0]}.{case.name}": case
    for case in (
        Case(f"{DET}/set_epoch_info_hook.py", "SetEpochInfoHook", {}),
        Case(
            f"{DET}/yolox_lrupdater_hook.py",
            "YOLOXLrUpdaterHook",
            dict(
                num_last_epochs=1,
                min_lr_ratio=0.05,
                warmup="exp",
                by_epoch=False,
                warmup_by_epoch=True,
                warmup_ratio=1,
                warmup_iters=1,
            ),
            priority="VERY_HIGH",
        ),
        Case(f"{DET}/yolox_mode_switch_hook.py", "YOLOXModeSwitchHook", dict(num_last_epochs=1)),
        Case(f"{DET}/sync_norm_hook.py", "SyncNormHook", dict(num_last_epochs=1)),
        Case(f"{DET}/ema.py", "ExpMomentumEMAHook", dict(momentum=0.1, total_iter=10), priority=49),
        Case(f"{DET}/ema.py", "LinearMomentumEMAHook", dict(momentum=0.1, warm_up=5), val=True),
        Case(f"{DET}/checkloss_hook.py", "CheckInvalidLossHook", dict(interval=2)),
        Case(
            "mmdet/core/utils/dist_utils.py",
            "DistOptimizerHook",
            dict(grad_clip=dict(max_norm=0.5)),
            steps=True,
        ),
        Case(f"{CLS}/class_num_check_hook.py", "ClassNumCheckHook", {}, val=True),
        Case(f"{CLS}/class_num_check_hook.py", "ClassNumCheckHook", {}, by_epoch=False),
        Case(f"{CLS}/precise_bn_hook.py", "PreciseBNHook", dict(num_samples=8)),
        Case(
            f"{CLS}/lr_updater.py",
            "CosineAnnealingCooldownLrUpdaterHook",
            dict(min_lr=0.01, cool_down_ratio=0.1, cool_down_time=2, by_epoch=False),
            priority="VERY_HIGH",
        ),
        Case(f"{SELF}/optimizer_hook.py", "DistOptimizerHook", dict(update_interval=3), steps=True),
        Case(f"{SELF}/simsiam_hook.py", "SimSiamHook", dict(fix_pred_lr=True, lr=0.05)),
        Case(f"{SELF}/densecl_hook.py", "DenseCLHook", dict(start_iters=5)),
        Case(f"{SELF}/momentum_update_hook.py", "MomentumUpdateHook", dict(update_interval=2)),
        Case(
            f"{SELF}/cosine_annealing_hook.py",
            "StepFixCosineAnnealingLrUpdaterHook",
            dict(min_lr=0.0, warmup="linear", warmup_iters=2, by_epoch=True),
            priority="VERY_HIGH",
        ),
        Case("mmpose/core/utils/model_util_hooks.py", "ModelSetEpochHook", {}, val=True),
        Case(
            "mmaction/core/scheduler/lr_updater.py",
            "TINLrUpdaterHook",
            dict(min_lr=0.01, by_epoch=False, warmup="exp", warmup_iters=3),
            priority="VERY_HIGH",
        ),
        Case(
            "mmedit/core/hooks/ema.py",
            "ExponentialMovingAverageHook",
            dict(module_keys="net_ema", interval=1, start_iter=2, interp_cfg=dict(momentum=0.5)),
        ),
        Case(
            "mmedit/core/scheduler/lr_updater.py",
            "LinearLrUpdaterHook",
            dict(target_lr=0.01, start=2, by_epoch=False),
            by_epoch=False,
            priority="VERY_HIGH",
        ),
        Case(
            "mmedit/core/scheduler/lr_updater.py",
            "ReduceLrUpdaterHook",
            dict(patience=1, by_epoch=False),
            by_epoch=False,
            priority="VERY_HIGH",
        ),
        Case(
            "mmtrack/core/optimizer/sot_lr_updater.py",
            "SiameseRPNLrUpdaterHook",
            dict(
                lr_configs=[
                    dict(
                        type="step",
                        start_lr_factor=0.2,
                        end_lr_factor=1,
                        start_epoch=0,
                        end_epoch=1,
                    ),
                    dict(
                        type="log", start_lr_factor=1, end_lr_factor=0.1, start_epoch=1, end_epoch=4
                    ),
                ]
            ),
            priority="VERY_HIGH",
        ),
        Case(
            "mmtrack/core/optimizer/sot_optimizer_hook.py",
            "SiameseRPNOptimizerHook",
            dict(
                backbone_start_train_epoch=1,
                backbone_train_layers=["conv"],
                grad_clip=dict(max_norm=1),
            ),
            steps=True,
        ),
        Case(
            "mmrazor/core/hooks/drop_path_prob.py",
            "DropPathProbHook",
            dict(max_prob=0.2, interval=1),
        ),
        Case("mmrazor/core/hooks/search_subnet.py", "SearchSubnetHook", dict(interval=2)),
        Case("mmrazor/core/hooks/sampler_seed.py", "DistSamplerSeedHook", {}, val=True),
        Case(
            "mmflow/core/hooks/multistagelr_updater.py",
            "MultiStageLrUpdaterHook",
            dict(
                milestone_lrs=[0.1, 0.05],
                milestone_iters=[0, 5],
                steps=[[3], [8]],
                gammas=[0.5, 0.1],
                by_epoch=False,
            ),
            by_epoch=False,
            priority="VERY_HIGH",
        ),
        Case(
            "mmflow/core/hooks/liteflownet_stage_loading.py",
            "LiteFlowNetStageLoadHook",
            dict(src_level="a", dst_level="b"),
            by_epoch=False,
        ),
        Case(
            "mmfewshot/detection/core/utils/custom_hook.py",
            "ContrastiveLossDecayHook",
            dict(decay_steps=(3, 6)),
        ),
        Case(
            "mmgen/core/hooks/ema_hook.py",
            "ExponentialMovingAverageHook",
            dict(module_keys=("net_ema",), interval=2, interp_cfg=dict(momentum=0.5)),
            priority="VERY_HIGH",
        ),
        Case(
            "mmgen/core/hooks/pickle_data_hook.py",
            "PickleDataHook",
            dict(output_dir="pickled", data_name_list=["scores"], interval=4),
        ),
        Case(
            "mmgen/core/scheduler/lr_updater.py",
            "LinearLrUpdaterHook",
            dict(target_lr=0.0, start=1, interval=2, by_epoch=False),
            priority="VERY_HIGH",
        ),
    )
}

NOT_RUN = {
    "mmdet.MemoryProfilerHook": "needs the packages memory_profiler and psutil",
    "mmdet.SyncRandomSizeHook": "needs data of mmdet's MultiImageMixDataset",
    "mmdet.NumClassCheckHook": "needs mmdet's heads",
    "EvalHook, DistEvalHook of each package": "need their packages' test functions and data sets",
    "MMDetWandbHook, MMClsWandbHook, MMSegWandbHook": "need their packages' data sets and masks",
    "mmcls.DistOptimizerHook": "the same text as mmdet's",
    "mmaction.OmniSourceDistSamplerSeedHook": "is of mmaction's own runner",
    "mmaction.SubBatchNorm3dAggregationHook": "needs mmaction's models",
    "mmaction.PreciseBNHook": "wants its model in DistributedDataParallel",
    "mmaction.LongShortCycleHook": "rewrites the loaders of mmaction's own builder",
    "mmaction.RelativeStepLrUpdaterHook": "is made inside LongShortCycleHook",
    "mmedit.VisualizationHook, mmgen.VisualizationHook": "need torchvision",
    "mmgen.PGGANFetchDataHook": "its point is of mmgen's own runner",
    "mmgen.PetrelUploadHook": "needs the Petrel storage",
    "mmgen.GenerativeEvalHook, mmgen.TranslationEvalHook": "need mmgen's metrics",
    "mmselfsup.ODCHook, DeepClusterHook, SwAVHook": "need their models and clustering",
    "mmpose.Fp16OptimizerHook, mmtrack.SiameseRPNFp16OptimizerHook": "need a GPU",
    "mmtrack.YOLOXModeSwitchHook": "is mmdet's with other keys",
    "mmpose.WeightNormClipHook, OutputHook": "are hooks of torch modules",
    "mmfewshot.MetaTestEvalHook and the other evaluations": "need their data sets",
}
"""Hooks that are not run, and why."""
