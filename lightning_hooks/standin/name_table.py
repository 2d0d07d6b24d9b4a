"""The name table: the names of each module of mmcv 1.x, and their sources.

``TABLE[mmcv's module][our module]`` lists what is offered, written ``mmcv's=ours`` where the names
differ. As in mmcv, a package has the names of its modules (``PACKAGES``).
"""

from __future__ import annotations

from lightning_hooks.standin.lite.names import LITE
from lightning_hooks.standin.mmcv_names import mmcv_modules

__all__ = ["PACKAGES", "TABLE"]

OURS = "lightning_hooks"
STANDIN = "lightning_hooks.standin"
_LOGGERS = "ClearML Dvclive Mlflow Neptune Tensorboard Wandb"


def _each(names: str, ending: str) -> str:
    return " ".join(f"{name}{ending}" for name in names.split())


TABLE: dict[str, dict[str, str]] = {
    "mmcv.version": {
        f"{STANDIN}.utils.version": "__version__=LAST version_info=LAST parse_version_info"
    },
    # -- mmcv.runner ---------------------------------------------------------------------------
    "mmcv.runner.hooks.hook": {OURS: "Hook", f"{STANDIN}._hooks.registry": "HOOKS"},
    "mmcv.runner.hooks.checkpoint": {f"{STANDIN}._hooks.checkpoint": "CheckpointHook"},
    "mmcv.runner.hooks.closure": {OURS: "ClosureHook"},
    "mmcv.runner.hooks.ema": {f"{STANDIN}._hooks.ema": "EMAHook"},
    "mmcv.runner.hooks.evaluation": {
        f"{STANDIN}._hooks.evaluation": "EvalHook DistEvalHook",
        "math": "inf",
    },
    "mmcv.runner.hooks.iter_timer": {f"{STANDIN}._hooks.adjusted": "IterTimerHook"},
    "mmcv.runner.hooks.lr_updater": {
        OURS: f"LrUpdaterHook {_each('Exp Fixed Inv Poly', 'LrUpdaterHook')}",
        f"{STANDIN}._hooks.adjusted": _each(
            "CosineAnnealing CosineRestart Cyclic FlatCosineAnnealing LinearAnnealing OneCycle "
            "Step",
            "LrUpdaterHook",
        )
        + " format_param get_position_from_periods",
        f"{OURS}.schedules.anneal": "annealing_cos annealing_linear",
        "math": "pi",
    },
    "mmcv.runner.hooks.memory": {OURS: "EmptyCacheHook"},
    "mmcv.runner.hooks.momentum_updater": {
        f"{STANDIN}._hooks.adjusted": "MomentumUpdaterHook "
        + _each("CosineAnnealing Cyclic LinearAnnealing OneCycle Step", "MomentumUpdaterHook")
    },
    "mmcv.runner.hooks.optimizer": {
        OURS: "OptimizerHook Fp16OptimizerHook",
        f"{STANDIN}._hooks.adjusted": "GradientCumulativeOptimizerHook "
        "GradientCumulativeFp16OptimizerHook",
    },
    "mmcv.runner.hooks.profiler": {OURS: "ProfilerHook"},
    "mmcv.runner.hooks.sampler_seed": {OURS: "DistSamplerSeedHook"},
    "mmcv.runner.hooks.sync_buffer": {OURS: "SyncBuffersHook"},
    "mmcv.runner.hooks.logger.base": {OURS: "LoggerHook"},
    **{
        f"mmcv.runner.hooks.logger.{name.lower()}": {
            f"{STANDIN}._hooks.loggers.trackers": f"{name}LoggerHook"
        }
        for name in _LOGGERS.split()
    },
    "mmcv.runner.hooks.logger.pavi": {f"{STANDIN}._hooks.loggers.discontinued": "PaviLoggerHook"},
    "mmcv.runner.hooks.logger.segmind": {
        f"{STANDIN}._hooks.loggers.discontinued": "SegmindLoggerHook"
    },
    "mmcv.runner.hooks.logger.text": {f"{STANDIN}._hooks.loggers.text": "TextLoggerHook"},
    "mmcv.runner.base_module": {
        f"{STANDIN}.cnn.base_module": "BaseModule ModuleDict ModuleList Sequential"
    },
    "mmcv.runner.base_runner": {f"{STANDIN}.runner.base_runner": "BaseRunner"},
    "mmcv.runner.builder": {
        f"{STANDIN}.runner": "RUNNERS build_runner",
        f"{STANDIN}.runner.builders": "RUNNER_BUILDERS build_runner_constructor",
    },
    "mmcv.runner.checkpoint": {
        f"{STANDIN}.runner.checkpoint": "get_state_dict load_checkpoint load_state_dict "
        "save_checkpoint weights_to_cpu _load_checkpoint _load_checkpoint_with_prefix",
        f"{STANDIN}.fileio.checkpoint_loader": "CheckpointLoader load_from_ceph load_from_http "
        "load_from_local load_from_torchvision",
        f"{STANDIN}.fileio.pavi": "load_from_pavi",
        f"{STANDIN}.fileio.io": "load_file=load",
    },
    "mmcv.runner.default_constructor": {f"{STANDIN}.runner.builders": "DefaultRunnerConstructor"},
    "mmcv.runner.dist_utils": {
        f"{STANDIN}.utils.dist": "allreduce_grads allreduce_params get_dist_info init_dist "
        "master_only"
    },
    "mmcv.runner.epoch_based_runner": {f"{STANDIN}.runner": "EpochBasedRunner Runner"},
    "mmcv.runner.fp16_utils": {
        f"{STANDIN}.runner.fp16": "auto_fp16 cast_tensor_type force_fp32 wrap_fp16_model",
        f"{STANDIN}.utils.dist": "allreduce_grads",
    },
    "mmcv.runner.iter_based_runner": {f"{STANDIN}.runner": "IterBasedRunner IterLoader"},
    "mmcv.runner.log_buffer": {OURS: "LogBuffer"},
    "mmcv.runner.optimizer.builder": {
        f"{STANDIN}.runner.builders": "OPTIMIZERS OPTIMIZER_BUILDERS TORCH_OPTIMIZERS "
        "build_optimizer build_optimizer_constructor"
    },
    "mmcv.runner.optimizer.default_constructor": {
        f"{STANDIN}.runner.builders": "DefaultOptimizerConstructor"
    },
    "mmcv.runner.priority": {OURS: "Priority get_priority"},
    "mmcv.runner.utils": {
        f"{STANDIN}.runner.seed": "get_host_info get_time_str obj_from_dict set_random_seed"
    },
    "mmcv.engine.test": {
        f"{STANDIN}.parallel.inference": "single_gpu_test multi_gpu_test",
        f"{STANDIN}.parallel.collect": "collect_results_cpu collect_results_gpu",
    },
    # -- mmcv.utils ----------------------------------------------------------------------------
    "mmcv.utils.config": {
        f"{STANDIN}.utils.config": "Config ConfigDict BASE_KEY DELETE_KEY DEPRECATION_KEY "
        "RESERVED_KEYS",
        f"{STANDIN}.utils.dict_action": "DictAction",
    },
    "mmcv.utils.device_type": {
        f"{STANDIN}.utils.env": "IS_IPU_AVAILABLE IS_MLU_AVAILABLE IS_MPS_AVAILABLE "
        "IS_MUSA_AVAILABLE IS_NPU_AVAILABLE is_ipu_available is_mlu_available is_mps_available "
        "is_npu_available"
    },
    "mmcv.utils.ext_loader": {
        f"{STANDIN}.utils.env": "check_ops_exist",
        f"{STANDIN}.ops.extension": "load_ext",
    },
    "mmcv.utils.env": {f"{STANDIN}.utils.env": "collect_env"},
    "mmcv.utils.hub": {"torch.hub": "load_url=load_state_dict_from_url"},
    "mmcv.utils.logging": {f"{STANDIN}.utils.logging": "get_logger logger_initialized print_log"},
    "mmcv.utils.misc": {
        f"{STANDIN}.utils.misc": "check_prerequisites concat_list deprecated_api_warning "
        "has_method import_modules_from_strings is_list_of is_method_overridden is_seq_of is_str "
        "is_tuple_of iter_cast list_cast requires_executable requires_package slice_list to_1tuple "
        "to_2tuple to_3tuple to_4tuple to_ntuple tuple_cast"
    },
    "mmcv.utils.parrots_jit": {f"{STANDIN}.utils.env": "jit parrots_jit_option skip_no_elena"},
    "mmcv.utils.parrots_wrapper": {
        f"{STANDIN}.utils.env": "IS_CUDA_AVAILABLE TORCH_VERSION _get_dataloader "
        "get_build_config is_cuda_available is_rocm_pytorch",
        "torch.nn": "SyncBatchNorm",
        "torch.nn.modules.batchnorm": "_BatchNorm",
        "torch.nn.modules.conv": "_ConvNd _ConvTransposeMixin=_ConvTransposeNd",
        "torch.nn.modules.instancenorm": "_InstanceNorm",
        "torch.nn.modules.pooling": "_AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _MaxPoolNd",
        "torch.utils.cpp_extension": "BuildExtension CppExtension CUDAExtension "
        "_get_cuda_home=_find_cuda_home",
        "torch.utils.data": "DataLoader PoolDataLoader=DataLoader",
    },
    "mmcv.utils.path": {
        f"{STANDIN}.fileio.path": "check_file_exist find_vcs_root fopen is_filepath mkdir_or_exist "
        "scandir symlink"
    },
    "mmcv.utils.progressbar": {
        f"{STANDIN}.utils.progressbar": "ProgressBar init_pool track_iter_progress "
        "track_parallel_progress track_progress"
    },
    "mmcv.utils.registry": {f"{STANDIN}.utils.registry": "Registry build_from_cfg"},
    "mmcv.utils.seed": {f"{STANDIN}.runner.seed": "worker_init_fn"},
    "mmcv.utils.testing": {
        f"{STANDIN}.utils.testing": "assert_attrs_equal assert_dict_contains_subset "
        "assert_dict_has_keys assert_is_norm_layer assert_keys_equal assert_params_all_zeros "
        "check_python_script"
    },
    "mmcv.utils.timer": {f"{STANDIN}.utils.timer": "Timer TimerError check_time"},
    "mmcv.utils.torch_ops": {f"{STANDIN}.utils.env": "torch_meshgrid"},
    "mmcv.utils.trace": {f"{STANDIN}.utils.env": "is_jit_tracing"},
    "mmcv.utils.version_utils": {f"{STANDIN}.utils.version": "digit_version get_git_hash"},
    # -- mmcv.parallel, mmcv.fileio ------------------------------------------------------------
    "mmcv.parallel.collate": {f"{STANDIN}.parallel.data_container": "collate"},
    "mmcv.parallel._functions": {
        f"{STANDIN}.parallel.data_container": "Scatter get_input_device scatter=move"
    },
    "mmcv.parallel.data_container": {
        f"{STANDIN}.parallel.data_container": "DataContainer assert_tensor_type"
    },
    "mmcv.parallel.data_parallel": {f"{STANDIN}.parallel.parallel": "MMDataParallel"},
    "mmcv.parallel.distributed": {f"{STANDIN}.parallel.parallel": "MMDistributedDataParallel"},
    "mmcv.parallel.distributed_deprecated": {
        f"{STANDIN}.parallel.parallel": "MMDistributedDataParallel"
    },
    "mmcv.parallel.registry": {f"{STANDIN}.parallel.parallel": "MODULE_WRAPPERS"},
    "mmcv.parallel.scatter_gather": {
        f"{STANDIN}.parallel.data_container": "scatter scatter_kwargs"
    },
    "mmcv.parallel.utils": {f"{STANDIN}.parallel.parallel": "is_module_wrapper"},
    "mmcv.fileio.file_client": {
        f"{STANDIN}.fileio.file_client": "BaseStorageBackend FileClient HTTPBackend=FsspecBackend "
        "HardDiskBackend",
        f"{STANDIN}.fileio.backends": "CephBackend LmdbBackend MemcachedBackend PetrelBackend",
    },
    "mmcv.fileio.handlers.base": {f"{STANDIN}.fileio.io": "BaseFileHandler"},
    "mmcv.fileio.handlers.json_handler": {f"{STANDIN}.fileio.io": "JsonHandler set_default"},
    "mmcv.fileio.handlers.pickle_handler": {f"{STANDIN}.fileio.io": "PickleHandler"},
    "mmcv.fileio.handlers.yaml_handler": {f"{STANDIN}.fileio.io": "YamlHandler"},
    "mmcv.fileio.io": {f"{STANDIN}.fileio.io": "dump file_handlers load register_handler"},
    "mmcv.fileio.parse": {f"{STANDIN}.fileio.io": "dict_from_file list_from_file"},
    # -- mmcv.cnn: the rest of it is in LITE ------------------------------------------------------
    "mmcv.cnn.builder": {f"{STANDIN}.cnn.registries": "MODELS build_model_from_cfg"},
    "mmcv.cnn.bricks.registry": {
        f"{STANDIN}.cnn.registries": "ACTIVATION_LAYERS ATTENTION CONV_LAYERS DROPOUT_LAYERS "
        "FEEDFORWARD_NETWORK NORM_LAYERS PADDING_LAYERS PLUGIN_LAYERS POSITIONAL_ENCODING "
        "TRANSFORMER_LAYER TRANSFORMER_LAYER_SEQUENCE UPSAMPLE_LAYERS",
    },
    "mmcv.cnn.bricks.transformer": {
        f"{STANDIN}.cnn.registries": "build_attention build_feedforward_network "
        "build_positional_encoding build_transformer_layer build_transformer_layer_sequence"
    },
    "mmcv.cnn.utils.sync_bn": {f"{STANDIN}.cnn.sync_bn": "revert_sync_batchnorm"},
    "mmcv.cnn.utils.weight_init": {
        f"{STANDIN}.cnn.initialize": "PretrainedInit initialize",
        f"{STANDIN}.cnn.initializers": "BaseInit INITIALIZERS Caffe2XavierInit ConstantInit "
        "KaimingInit NormalInit TruncNormalInit UniformInit XavierInit update_init_info",
        f"{STANDIN}.cnn.weight_init": "bias_init_with_prob caffe2_xavier_init constant_init "
        "kaiming_init normal_init trunc_normal_ trunc_normal_init uniform_init xavier_init",
    },
    # -- mmcv.ops: the rest of it is in LITE ------------------------------------------------------
    "mmcv.ops.info": {f"{STANDIN}.ops.extension": "get_onnxruntime_op_path"},
    "mmcv.ops.upfirdn2d": {f"{STANDIN}.ops.extension": "upfirdn2d"},
    # -- mmcv.device -----------------------------------------------------------------------------
    "mmcv.device": {f"{STANDIN}.parallel.data_container": "scatter scatter_kwargs"},
    "mmcv.device.utils": {f"{STANDIN}.utils.env": "get_device"},
}
for _module, _names in LITE.items():
    TABLE[_module] = {_module: _names, **TABLE.get(_module, {})}

_MODULES = [*TABLE, *mmcv_modules()]
PACKAGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_MODULES, ()),
    **{package: (package,) for package in (name.rpartition(".")[0] for name in _MODULES)},
    "mmcv": (
        "mmcv.utils",
        "mmcv.fileio",
        "mmcv.image",
        "mmcv.video",
        "mmcv.visualization",
        "mmcv.arraymisc",
        "mmcv.version",
    ),
}
"""All modules, with the packages whose modules' names they include."""
