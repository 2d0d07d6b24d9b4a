"""The name table: the names of mmcv 1.x in the stand-in, and the source of each name."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from lightning_hooks.standin.lite.names import LITE
from lightning_hooks.standin.mmcv_names import Kind, mmcv_modules

__all__ = ["MODULES", "OFFERED", "OFFERED_AT", "PACKAGES", "UNRECORDED", "Source"]

_STANDIN = "lightning_hooks.standin"


class Source(NamedTuple):
    """The module of a name of mmcv, and the name in the module."""

    module: str
    name: str
    is_public: bool = True
    missing: Kind | None = None
    """The kind of a name without source; ``module`` is then mmcv's."""

    def load(self) -> Any:
        """Import and return the object."""
        return getattr(importlib.import_module(self.module), self.name)


_TABLE = {
    "standin.utils.version": (
        "__version__=LAST version_info=LAST parse_version_info digit_version get_git_hash"
    ),
    "": (
        "Hook ClosureHook LrUpdaterHook ExpLrUpdaterHook FixedLrUpdaterHook InvLrUpdaterHook "
        "PolyLrUpdaterHook EmptyCacheHook OptimizerHook Fp16OptimizerHook ProfilerHook "
        "DistSamplerSeedHook SyncBuffersHook LoggerHook LogBuffer Priority get_priority"
    ),
    "standin._hooks.registry": "HOOKS",
    "standin._hooks.checkpoint": "CheckpointHook",
    "standin._hooks.ema": "EMAHook",
    "standin._hooks.evaluation": "EvalHook DistEvalHook",
    "standin._hooks.adjusted": (
        "IterTimerHook CosineAnnealingLrUpdaterHook CosineRestartLrUpdaterHook "
        "CyclicLrUpdaterHook FlatCosineAnnealingLrUpdaterHook LinearAnnealingLrUpdaterHook "
        "OneCycleLrUpdaterHook StepLrUpdaterHook format_param get_position_from_periods "
        "MomentumUpdaterHook CosineAnnealingMomentumUpdaterHook CyclicMomentumUpdaterHook "
        "LinearAnnealingMomentumUpdaterHook OneCycleMomentumUpdaterHook StepMomentumUpdaterHook "
        "GradientCumulativeOptimizerHook GradientCumulativeFp16OptimizerHook"
    ),
    "schedules.anneal": "annealing_cos annealing_linear",
    "standin._hooks.loggers": (
        "ClearMLLoggerHook DvcliveLoggerHook MlflowLoggerHook NeptuneLoggerHook PaviLoggerHook "
        "SegmindLoggerHook TensorboardLoggerHook TextLoggerHook WandbLoggerHook"
    ),
    "standin.cnn.base_module": "BaseModule ModuleDict ModuleList Sequential",
    "standin.runner.base_runner": "BaseRunner",
    "standin.runner": ("RUNNERS build_runner EpochBasedRunner Runner IterBasedRunner IterLoader"),
    "standin.runner.builders": (
        "RUNNER_BUILDERS build_runner_constructor DefaultRunnerConstructor OPTIMIZERS "
        "OPTIMIZER_BUILDERS TORCH_OPTIMIZERS build_optimizer build_optimizer_constructor "
        "DefaultOptimizerConstructor"
    ),
    "standin.runner.checkpoint": (
        "get_state_dict load_checkpoint load_state_dict save_checkpoint weights_to_cpu "
        "_load_checkpoint _load_checkpoint_with_prefix"
    ),
    "standin.fileio.checkpoint_loader": (
        "CheckpointLoader load_from_ceph load_from_http load_from_local load_from_pavi "
        "load_from_torchvision"
    ),
    "standin.fileio.io": (
        "load_file=load BaseFileHandler JsonHandler set_default PickleHandler YamlHandler dump "
        "file_handlers load register_handler dict_from_file list_from_file"
    ),
    "standin.utils.dist": ("allreduce_grads allreduce_params get_dist_info init_dist master_only"),
    "standin.runner.fp16": "auto_fp16 cast_tensor_type force_fp32 wrap_fp16_model",
    "standin.runner.seed": (
        "get_host_info get_time_str obj_from_dict set_random_seed worker_init_fn"
    ),
    "standin.parallel.inference": (
        "single_gpu_test multi_gpu_test collect_results_cpu collect_results_gpu"
    ),
    "standin.utils.config": (
        "Config ConfigDict BASE_KEY DELETE_KEY DEPRECATION_KEY RESERVED_KEYS DictAction"
    ),
    "standin.utils.env": (
        "_get_dataloader "
        "IS_IPU_AVAILABLE IS_MLU_AVAILABLE IS_MPS_AVAILABLE IS_MUSA_AVAILABLE IS_NPU_AVAILABLE "
        "is_ipu_available is_mlu_available is_mps_available is_npu_available check_ops_exist "
        "collect_env jit parrots_jit_option skip_no_elena IS_CUDA_AVAILABLE TORCH_VERSION "
        "get_build_config is_cuda_available is_rocm_pytorch torch_meshgrid is_jit_tracing "
        "get_device"
    ),
    "standin.ops.extension": "load_ext get_onnxruntime_op_path",
    "standin.utils.logging": "get_logger logger_initialized print_log",
    "standin.utils.misc": (
        "check_prerequisites concat_list deprecated_api_warning has_method "
        "import_modules_from_strings is_list_of is_method_overridden is_seq_of is_str "
        "is_tuple_of iter_cast list_cast requires_executable requires_package slice_list "
        "to_1tuple to_2tuple to_3tuple to_4tuple to_ntuple tuple_cast"
    ),
    "standin.fileio.path": (
        "check_file_exist find_vcs_root fopen is_filepath mkdir_or_exist scandir symlink"
    ),
    "standin.utils.progressbar": (
        "ProgressBar init_pool track_iter_progress track_parallel_progress track_progress"
    ),
    "standin.utils.registry": "Registry build_from_cfg",
    "standin.utils.testing": (
        "assert_attrs_equal assert_dict_contains_subset assert_dict_has_keys "
        "assert_is_norm_layer assert_keys_equal assert_params_all_zeros check_python_script"
    ),
    "standin.utils.timer": "Timer TimerError check_time",
    "standin.parallel.data_container": (
        "collate DataContainer assert_tensor_type scatter scatter_kwargs Scatter get_input_device"
    ),
    "standin.parallel.parallel": (
        "MMDataParallel MMDistributedDataParallel MODULE_WRAPPERS is_module_wrapper"
    ),
    "standin.fileio.file_client": (
        "BaseStorageBackend FileClient HTTPBackend=FsspecBackend HardDiskBackend CephBackend "
        "LmdbBackend MemcachedBackend PetrelBackend"
    ),
    "standin.cnn.registries": (
        "MODELS build_model_from_cfg ACTIVATION_LAYERS ATTENTION CONV_LAYERS DROPOUT_LAYERS "
        "FEEDFORWARD_NETWORK NORM_LAYERS PADDING_LAYERS PLUGIN_LAYERS POSITIONAL_ENCODING "
        "TRANSFORMER_LAYER TRANSFORMER_LAYER_SEQUENCE UPSAMPLE_LAYERS build_attention "
        "build_feedforward_network build_positional_encoding build_transformer_layer "
        "build_transformer_layer_sequence"
    ),
    "standin.cnn.sync_bn": "revert_sync_batchnorm",
    "standin.cnn.weight_init": (
        "BaseInit INITIALIZERS Caffe2XavierInit ConstantInit KaimingInit NormalInit PretrainedInit "
        "TruncNormalInit UniformInit XavierInit initialize update_init_info bias_init_with_prob "
        "caffe2_xavier_init constant_init kaiming_init normal_init "
        "trunc_normal_ trunc_normal_init uniform_init xavier_init"
    ),
}
"""The names by their module below ``lightning_hooks``; ``mmcv's=ours`` where the names differ."""

_OF_OTHERS = {
    "math": "inf pi",
    "torch.hub": "load_url=load_state_dict_from_url",
    "torch.nn": "SyncBatchNorm",
    "torch.nn.modules.batchnorm": "_BatchNorm",
    "torch.nn.modules.conv": "_ConvNd _ConvTransposeMixin=_ConvTransposeNd",
    "torch.nn.modules.instancenorm": "_InstanceNorm",
    "torch.nn.modules.pooling": "_AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _MaxPoolNd",
    "torch.utils.cpp_extension": (
        "BuildExtension CppExtension CUDAExtension _get_cuda_home=_find_cuda_home"
    ),
    "torch.utils.data": "DataLoader PoolDataLoader=DataLoader",
}
"""Names that mmcv takes from other packages, in the same form."""

_FROM_TORCH = (
    *("_BatchNorm", "_ConvNd", "_ConvTransposeMixin", "_InstanceNorm", "_AdaptiveAvgPoolNd"),
    *("_AdaptiveMaxPoolNd", "_AvgPoolNd", "_MaxPoolNd", "BuildExtension", "CppExtension"),
    *("CUDAExtension", "_get_cuda_home", "DataLoader", "PoolDataLoader", "_get_dataloader"),
)
UNRECORDED = {
    **dict.fromkeys(["mmcv", "mmcv.utils.parrots_wrapper"], _FROM_TORCH),
    "mmcv.utils": (*_FROM_TORCH, "IS_MUSA_AVAILABLE"),  # the files of mmcv 2.x import the latter
    "mmcv.utils.hub": ["load_url"],
    "mmcv.runner.hooks.evaluation": ["inf"],
    "mmcv.runner.hooks.lr_updater": ["pi"],
}
"""Names of a module that are missing in ``mmcv_names.txt``, which has mmcv's own objects."""

_PUBLIC = ("_load_checkpoint", "_load_checkpoint_with_prefix", "_BatchNorm", "_InstanceNorm")
"""Names that mmcv lists in an ``__all__`` in spite of their underscore."""


def _sources(table: dict[str, str]) -> dict[str, Source]:
    found = {}
    for module, names in table.items():
        for entry in names.split():
            theirs, _, ours = entry.partition("=")
            public = theirs in _PUBLIC or not theirs.startswith("_") or theirs.startswith("__")
            found[theirs] = Source(module, ours or theirs, public)
    return found


OFFERED = _sources(
    {**{f"lightning_hooks.{k}".rstrip("."): v for k, v in _TABLE.items()}, **_OF_OTHERS}
)
"""The source of each name, whichever module of mmcv has it."""

OFFERED_AT = {
    **{module: _sources({module: names}) for module, names in LITE.items()},
    "mmcv.parallel._functions": _sources({f"{_STANDIN}.parallel.data_container": "scatter=move"}),
    "mmcv.ops": _sources({"mmcv.ops": LITE["mmcv.ops"], "mmcv.ops.sync_bn": "SyncBatchNorm"}),
    "mmcv.ops.upfirdn2d": _sources({f"{_STANDIN}.ops.extension": "upfirdn2d"}),
}
"""The names that come from elsewhere in one module of mmcv: from mmcv-lite's files, mostly."""

_MODULES = [*OFFERED_AT, *mmcv_modules()]
PACKAGES = {name.rpartition(".")[0] for name in _MODULES} - {""}
"""The packages of mmcv."""

MODULES = {*_MODULES, *PACKAGES}
"""All modules of mmcv, packages included."""
