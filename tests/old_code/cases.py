"""The hooks of real packages that run, their cases, and the reasons for hooks that do not run."""

from __future__ import annotations

from case import (
    CLUSTERS,
    EPOCH_CHECKPOINTS,
    EVAL,
    TIMER,
    WANDB,
    YOLOX_RATE,
    Case,
    evaluating,
    evaluation,
)
from cases_easycv import EASYCV
from cases_openmixup import OPENMIXUP

__all__ = ["CASES", "NOT_RUN", "Case"]

DET, CLS, SELF = "mmdet/core/hook", "mmcls/core/hook", "mmselfsup/core/hooks"

CASES = {
    f"{case.file.partition('/')[0]}.{case.name}": case
    for case in (
        Case(f"{DET}/set_epoch_info_hook.py", "SetEpochInfoHook", {}),
        Case(
            f"{DET}/yolox_lrupdater_hook.py",
            "YOLOXLrUpdaterHook",
            YOLOX_RATE,
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
        Case(f"{DET}/memory_profiler_hook.py", "MemoryProfilerHook", dict(interval=3)),
        Case(f"{DET}/sync_random_size_hook.py", "SyncRandomSizeHook", dict(device="cpu")),
        Case("mmdet/datasets/utils.py", "NumClassCheckHook", {}, val=True),
        evaluating("mmdet", dynamic_intervals=[(3, 1)], interval=2, save_best="acc"),
        Case(
            f"{DET}/wandblogger_hook.py",
            "MMDetWandbHook",
            dict(WANDB, num_eval_images=0),
            priority="VERY_LOW",
            in_trainer=False,
            beside=(EPOCH_CHECKPOINTS, TIMER, evaluation("mmdet", interval=1)),
        ),
        Case(
            "mmcls/core/utils/dist_utils.py",
            "DistOptimizerHook",
            dict(grad_clip=dict(max_norm=0.5)),
            steps=True,
        ),
        evaluating("mmcls", save_best="auto"),
        Case(
            f"{CLS}/wandblogger_hook.py",
            "MMClsWandbHook",
            dict(WANDB, num_eval_images=3),
            priority="VERY_LOW",
            in_trainer=False,
            beside=(EPOCH_CHECKPOINTS, TIMER, evaluation("mmcls", interval=1)),
        ),
        evaluating("mmseg", by_epoch=False, interval=4, save_best="mIoU", pre_eval=True),
        Case(
            "mmseg/core/hook/wandblogger_hook.py",
            "MMSegWandbHook",
            dict(WANDB, num_eval_images=3, by_epoch=False, log_checkpoint_metadata=False),
            by_epoch=False,
            priority="VERY_LOW",
            in_trainer=False,
            beside=(
                ("mmcv", "CheckpointHook", {"interval": 4, "by_epoch": False}, "NORMAL"),
                TIMER,
                evaluation("mmseg", interval=4),
            ),
        ),
        Case(f"{SELF}/swav_hook.py", "SwAVHook", dict(batch_size=4)),
        Case(
            f"{SELF}/odc_hook.py",
            "ODCHook",
            CLUSTERS,
        ),
        Case(
            f"{SELF}/deepcluster_hook.py",
            "DeepClusterHook",
            dict(
                extractor=dict(samples_per_gpu=4),
                clustering=dict(type="Kmeans", k=4),
                unif_sampling=False,
                reweight=True,
                reweight_pow=0.5,
                dist_mode=False,
                data_loaders=["<train>"],
            ),
        ),
        evaluating("mmpose", interval=2, save_best="acc"),
        evaluating("mmaction", interval=2),
        Case(
            "mmaction/core/lr/multigridlr.py",
            "RelativeStepLrUpdaterHook",
            dict(runner="<runner>", steps=[1, 3], lrs=[0.1, 0.01]),
            priority="VERY_HIGH",
            in_trainer=False,
        ),
        Case("mmaction/core/runner/omnisource_runner.py", "OmniSourceDistSamplerSeedHook", {}),
        Case("mmaction/utils/multigrid/subbn_aggregate.py", "SubBatchNorm3dAggregationHook", {}),
        evaluating("mmedit", by_epoch=False, name="EvalIterHook", interval=4),
        Case(
            "mmedit/core/hooks/visualization.py",
            "MMEditVisualizationHook",
            dict(output_dir="<work_dir>/seen", res_name_list=["img"], interval=4),
        ),
        evaluating("mmflow", by_epoch=False, interval=4),
        evaluating("mmtrack", interval=2, save_best="acc", rule="greater"),
        Case(
            "mmtrack/core/hook/yolox_mode_switch_hook.py",
            "YOLOXModeSwitchHook",
            dict(num_last_epochs=1),
        ),
        Case(
            "mmfewshot/detection/core/evaluation/eval_hooks.py",
            "QuerySupportEvalHook",
            dict(model_init_dataloader=EVAL, val_dataloader=EVAL, interval=2, save_best="acc"),
            priority="LOW",
        ),
        Case(
            "mmfewshot/classification/core/evaluation/eval_hooks.py",
            "MetaTestEvalHook",
            dict(
                support_dataloader=EVAL,
                query_dataloader=EVAL,
                test_set_dataloader=None,
                num_test_tasks=3,
                interval=2,
            ),
            priority="LOW",
        ),
        Case(
            "mmgen/core/evaluation/eval_hooks.py",
            "GenerativeEvalHook",
            dict(dataloader=EVAL, interval=4, metrics=dict(type="FID", num_images=8)),
            by_epoch=False,
            priority="LOW",
        ),
        Case(
            "mmgen/core/hooks/visualization.py",
            "VisualizationHook",
            dict(output_dir="seen", res_name_list=["img"], interval=4),
        ),
        Case("mmgen/core/hooks/pggan_fetch_data_hook.py", "PGGANFetchDataHook", {}),
        Case(
            "mmgen/core/hooks/ceph_hooks.py",
            "PetrelUploadHook",
            dict(data_path="", ceph_path="s3://x", rm_orig=False),
            beside=(EPOCH_CHECKPOINTS,),
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
        evaluating("mmhuman3d", interval=2, save_best="acc", rule="greater"),
        Case(
            "mmhuman3d/utils/dist_utils.py",
            "DistOptimizerHook",
            dict(grad_clip=dict(max_norm=0.5)),
            steps=True,
        ),
        *OPENMIXUP,
        *EASYCV,
    )
}

NOT_RUN = {
    "DistEvalHook of each package": "is its EvalHook with results collected over GPUs; "
    "mmcv's own runs in tests/old_project/old_script.py on two processes",
    "mmaction.PreciseBNHook": "wants its model in DistributedDataParallel on GPUs",
    "mmaction.LongShortCycleHook": "builds new loaders by mmaction's own builder, for videos",
    "mmgen.TranslationEvalHook": "wants mmgen's translation models of two domains",
    "mmpose.Fp16OptimizerHook, mmtrack.SiameseRPNFp16OptimizerHook": "need a GPU",
    "openmixup.SSLMetricHook": "draws with seaborn and umap",
    "openmixup.StepScheduleHook": "cannot be made: it compares a list with a number",
    "easycv.MixupCollateHook": "is a hook of batches that are put together, not of runners",
    "easycv.AddLrLogHook": "is a hook of ModelScope's trainer",
    "mmedit.VisualizationHook": "is MMEditVisualizationHook by its old name",
    "mmpose.WeightNormClipHook, OutputHook": "are hooks of torch modules, not of runners",
}
"""Hooks that do not run, with the reason."""
