"""The stand-in's importable names and paths, and the errors for missing names."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import lightning_hooks
from lightning_hooks import HookAdapter, standin
from lightning_hooks.standin.name_table import MODULES, UNRECORDED
from support.processes import run_program
from support.standin import needs_lite

# imports of the self-contained hook classes in a survey of 37 repositories
SURVEYED = """
mmcv.runner: Hook HOOKS get_dist_info BaseRunner LrUpdaterHook OptimizerHook EpochBasedRunner
mmcv.runner: EvalHook DistEvalHook IterBasedRunner load_state_dict load_checkpoint Runner
mmcv.runner: master_only TextLoggerHook CheckpointHook LoggerHook obj_from_dict
mmcv.runner: wrap_fp16_model auto_fp16 force_fp32 allreduce_grads
mmcv.runner.hooks: HOOKS Hook LrUpdaterHook OptimizerHook LoggerHook CheckpointHook
mmcv.runner.hooks.hook: HOOKS Hook
mmcv.runner.dist_utils: master_only allreduce_params get_dist_info
mmcv.runner.hooks.lr_updater: annealing_cos CosineAnnealingLrUpdaterHook LrUpdaterHook
mmcv.runner.hooks.lr_updater: StepLrUpdaterHook
mmcv.runner.hooks.logger.base: LoggerHook
mmcv.runner.hooks.logger: LoggerHook
mmcv.runner.hooks.logger.wandb: WandbLoggerHook
mmcv.runner.hooks.ema: EMAHook
mmcv.runner.hooks.checkpoint: CheckpointHook
mmcv.runner.hooks.optimizer: OptimizerHook
mmcv.runner.hooks.evaluation: EvalHook DistEvalHook
mmcv.parallel: is_module_wrapper MMDistributedDataParallel MMDataParallel collate scatter
mmcv.utils: print_log Registry is_seq_of _BatchNorm is_tuple_of scandir TORCH_VERSION digit_version
mmcv.utils: build_from_cfg Config ConfigDict
mmcv.utils.parrots_wrapper: _BatchNorm _get_dataloader
mmcv.cnn.bricks.wrappers: NewEmptyTensorOp obsolete_torch_version
mmcv.fileio.file_client: FileClient
mmcv.cnn.bricks: DropPath
mmcv: ProgressBar mkdir_or_exist is_tuple_of is_list_of print_log track_iter_progress runner dump
mmcv: bgr2rgb concat_list load symlink scandir FileClient Config __version__
"""

RUNNER = """
BaseRunner Runner EpochBasedRunner IterBasedRunner LogBuffer HOOKS Hook CheckpointHook ClosureHook
LrUpdaterHook FixedLrUpdaterHook StepLrUpdaterHook ExpLrUpdaterHook PolyLrUpdaterHook
InvLrUpdaterHook CosineAnnealingLrUpdaterHook FlatCosineAnnealingLrUpdaterHook
CosineRestartLrUpdaterHook CyclicLrUpdaterHook OneCycleLrUpdaterHook MomentumUpdaterHook
StepMomentumUpdaterHook CosineAnnealingMomentumUpdaterHook CyclicMomentumUpdaterHook
OneCycleMomentumUpdaterHook OptimizerHook IterTimerHook DistSamplerSeedHook LoggerHook
PaviLoggerHook TextLoggerHook TensorboardLoggerHook NeptuneLoggerHook WandbLoggerHook
MlflowLoggerHook DvcliveLoggerHook _load_checkpoint load_state_dict load_checkpoint weights_to_cpu
save_checkpoint Priority get_priority get_host_info get_time_str obj_from_dict init_dist
get_dist_info master_only OPTIMIZER_BUILDERS OPTIMIZERS DefaultOptimizerConstructor build_optimizer
build_optimizer_constructor IterLoader set_random_seed auto_fp16 force_fp32 wrap_fp16_model
Fp16OptimizerHook SyncBuffersHook EMAHook build_runner RUNNERS allreduce_grads allreduce_params
LossScaler CheckpointLoader BaseModule _load_checkpoint_with_prefix EvalHook DistEvalHook Sequential
ModuleDict ModuleList GradientCumulativeOptimizerHook GradientCumulativeFp16OptimizerHook
DefaultRunnerConstructor SegmindLoggerHook LinearAnnealingMomentumUpdaterHook
LinearAnnealingLrUpdaterHook ClearMLLoggerHook
"""
"""``mmcv.runner.__all__`` of mmcv 1.7.2."""


def pairs() -> Iterator[tuple[str, str]]:
    for line in SURVEYED.split("\n"):
        module, _, names = line.partition(":")
        for name in names.split():
            yield module, name


def test_what_real_hooks_import_is_there() -> None:
    for module, name in pairs():
        assert getattr(importlib.import_module(module), name) is not None, (module, name)


def test_all_of_mmcv_runner_is_there_also_by_a_star() -> None:
    scope: dict[str, Any] = {}
    exec("from mmcv.runner import *", scope)
    assert set(RUNNER.split()) <= scope.keys()


@needs_lite
def test_every_module_is_there_with_the_names_that_it_takes_from_torch() -> None:
    for module in MODULES:
        importlib.import_module(module)
    for module, names in UNRECORDED.items():
        for name in {*names} - {"BuildExtension", "CppExtension", "CUDAExtension"}:  # slow
            getattr(importlib.import_module(module), name)


def test_the_hooks_are_the_native_ones() -> None:
    from mmcv.runner import CheckpointHook, EMAHook, EvalHook, Hook, TextLoggerHook
    from mmcv.runner.hooks.lr_updater import ExpLrUpdaterHook, StepLrUpdaterHook

    assert Hook is lightning_hooks.Hook
    assert ExpLrUpdaterHook is lightning_hooks.ExpLrUpdaterHook
    for exact in (CheckpointHook, EvalHook, StepLrUpdaterHook, TextLoggerHook):
        assert issubclass(exact, getattr(lightning_hooks, exact.__name__))
    assert issubclass(EMAHook, lightning_hooks.Hook)


def test_the_version_is_that_of_the_last_of_1x() -> None:
    import mmcv

    assert mmcv.__version__ == "1.7.2"
    assert mmcv.version_info == (1, 7, 2)


def test_an_unknown_name_fails_with_what_there_is() -> None:
    with pytest.raises(ImportError, match="did you mean 'LrUpdaterHook'"):
        exec("from mmcv.runner import LrUpdatrHook")
    with pytest.raises(ImportError, match=r"mmcv has no 'runnr'.*did you mean 'runner'"):
        exec("import mmcv.runnr")
    import mmcv

    with pytest.raises(AttributeError, match="did you mean 'Config'"):
        _ = mmcv.Confg
    assert not hasattr(mmcv, "jitt")


def test_uninstalling_leaves_nothing_behind() -> None:
    standin.uninstall()
    before = {**sys.modules}
    meta_path = [*sys.meta_path]
    with standin.installed():
        with standin.installed():
            importlib.import_module("mmcv.runner.hooks")
        assert "mmcv.runner.hooks" in sys.modules  # the outer block is not over
        standin.install()
    assert {n for n in sys.modules if n.partition(".")[0] == "mmcv"} == {
        n for n in before if n.partition(".")[0] == "mmcv"
    }
    assert sys.meta_path == meta_path
    found = importlib.util.find_spec("mmcv")
    assert found is None or found.origin != "lightning_hooks"  # mmcv-lite
    standin.uninstall()  # twice does no harm


def test_what_was_imported_works_after_uninstalling_and_pickles() -> None:
    from mmcv.runner import EMAHook, Hook

    standin.uninstall()
    assert pickle.loads(pickle.dumps(EMAHook(momentum=0.5))).momentum == 0.5
    assert Hook().get_triggered_stages() == []


def run_beside(tmp_path: Path, version: str, program: str) -> str:
    """Run a program with a minimal package ``mmcv`` of the given version installed."""
    package = tmp_path / "mmcv"
    (package / "utils").mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(
        "from .version import __version__\nfrom .utils import collect_env\n"
    )
    (package / "version.py").write_text(f"__version__ = '{version}'\n")
    (package / "utils" / "__init__.py").write_text("def collect_env():\n    return 'real'\n")
    if version.startswith("1"):
        (package / "runner.py").write_text("Hook = 'real'\n")
    root = Path(lightning_hooks.__file__).parents[1]
    setup = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(root)!r}]\n"
    setup += "from lightning_hooks import standin\n"
    return run_program(setup + textwrap.dedent(program))


def test_real_mmcv_wins(tmp_path: Path) -> None:
    program = """
    standin.install()
    assert "mmcv" not in sys.modules  # nothing is imported to find out
    import mmcv.runner
    print(mmcv.__version__, mmcv.runner.Hook, mmcv.collect_env())
    try:
        import mmcv.parallel
    except ModuleNotFoundError as error:
        print(error)
    """
    assert run_beside(tmp_path, "1.6.0", program) == (
        "1.6.0 real real\nNo module named 'mmcv.parallel'\n"
    )


def test_mmcv_2_gives_way_if_it_has_not_been_imported(tmp_path: Path) -> None:
    program = """
    try:
        import mmcv
        standin.install()
    except ImportError as error:
        print(error)
    for name in [name for name in sys.modules if name.startswith("mmcv")]:
        del sys.modules[name]
    standin.install()
    import mmcv.runner
    print(mmcv.__version__, mmcv.runner.Hook.__module__)
    try:
        from mmcv.cnn import ConvModule
    except ImportError as error:
        print(error)
    """
    lines = run_beside(tmp_path, "2.1.0", program).splitlines()
    assert lines[0].startswith(
        "mmcv 2.1.0 has been imported already: call standin.install() before"
    )
    assert lines[1] == "1.7.2 lightning_hooks.engine.hook"
    assert lines[2].startswith("mmcv.cnn: mmcv 2.1.0 is installed in ")
    assert lines[2].endswith("pip install --no-deps mmcv-lite==2.2.0")


def test_compiled_operators_are_those_of_an_installed_mmcv_2(tmp_path: Path) -> None:
    """A Python module replaces the compiled module."""
    operators = tmp_path / "mmcv" / "ops"
    operators.mkdir(parents=True)
    (tmp_path / "mmcv" / "_ext.py").write_text("def double(x):\n    return 2 * x\n")
    (operators / "__init__.py").write_text("from .double import Double, double\n")
    (operators / "double.py").write_text(
        "from mmengine.registry import MODELS\n"
        "from mmengine.device import is_musa_available\n"
        "from ..utils import IS_MUSA_AVAILABLE, ext_loader\n"
        "double = ext_loader.load_ext('_ext', ['double']).double\n"
        "class Double: pass\n"
    )
    (operators / "deform_conv.py").write_text(
        "from mmengine.registry import MODELS\n@MODELS.register_module('DCN')\nclass DCN: pass\n"
    )
    program = """
    standin.install()
    from mmcv.ops import double, Double
    import mmcv
    from mmcv.utils import ext_loader as loader
    print(mmcv.__version__, double(3), Double.__module__, loader.check_ops_exist())
    import mmcv.ops.deform_conv
    from lightning_hooks.standin.cnn.registries import CONV_LAYERS
    print(CONV_LAYERS.get("DCN"))
    try:
        loader.load_ext("_ext", ["triple"])
    except AssertionError as error:
        print(error)
    """
    assert run_beside(tmp_path, "2.1.0", program).splitlines() == [
        "1.7.2 6 mmcv.ops.double True",
        "<class 'mmcv.ops.deform_conv.DCN'>",
        "triple miss in module _ext",
    ]


def test_beside_mmcv_2_only_what_it_has_lost_is_filled(tmp_path: Path) -> None:
    program = """
    standin.install(beside_mmcv_2=True)
    import mmcv
    from mmcv.runner import Hook, build_runner
    from mmcv.utils import Registry, collect_env
    print(mmcv.__version__, collect_env(), mmcv.Config.__module__, Registry.__module__)
    try:
        mmcv.nothing
    except AttributeError as error:
        print(error)
    standin.uninstall()
    print(sorted(n for n in sys.modules if n.startswith("mmcv")), hasattr(mmcv, "Config"))
    print(hasattr(mmcv, "runner"))
    """
    assert run_beside(tmp_path, "2.1.0", program).splitlines() == [
        "2.1.0 real mmcv.utils.config lightning_hooks.standin.utils.registry",
        "module 'mmcv' has no attribute 'nothing'",
        "['mmcv', 'mmcv.utils', 'mmcv.version'] False",
        "False",
    ]


# -- the registry ------------------------------------------------------------------------------


def test_what_old_files_register_an_adapter_finds() -> None:
    from mmcv.runner import HOOKS, Hook

    try:
        with pytest.warns(DeprecationWarning, match="old API of register_module"):

            @HOOKS.register_module
            class OldBareHook(Hook):
                pass

        @HOOKS.register_module(name=["OldOne", "OldOther"])
        class OldNamedHook(Hook):
            pass

        hooks = HookAdapter([dict(type="OldBareHook"), dict(type="OldOther")]).hooks
        assert [type(hook) for hook in hooks] == [OldBareHook, OldNamedHook]
        assert HOOKS.get("mmcv.OldOne") is OldNamedHook
        with pytest.raises(KeyError, match="OldBareHook is already registered"):
            HOOKS.register_module(module=OldBareHook)
        HOOKS.register_module(force=True, module=OldBareHook)
    finally:
        for name in ("OldBareHook", "OldOne", "OldOther"):
            lightning_hooks.HOOKS.module_dict.pop(name, None)


def test_a_projects_hook_takes_the_place_of_one_that_mmcv_does_not_have() -> None:
    from mmcv.runner import HOOKS, Hook

    kept = lightning_hooks.HOOKS.module_dict["CheckInvalidLossHook"]
    try:

        @HOOKS.register_module()
        class CheckInvalidLossHook(Hook):
            """mmdetection's own."""

        assert HOOKS.get("CheckInvalidLossHook") is CheckInvalidLossHook
    finally:
        lightning_hooks.HOOKS.module_dict["CheckInvalidLossHook"] = kept
    with pytest.raises(KeyError, match="EMAHook is already registered"):
        HOOKS.register_module("EMAHook", module=CheckInvalidLossHook)


def test_registries_have_scopes_and_parents() -> None:
    from mmcv.utils import Registry, build_from_cfg

    models = Registry("models", scope="mmcv")
    detectors = Registry("models", parent=models, scope="mmdet")

    @models.register_module()
    class Base:
        def __init__(self, depth: int, wide: bool = False) -> None:
            self.depth, self.wide = depth, wide

    @detectors.register_module()
    def make_head(size: int) -> int:
        return size * 2

    assert Registry("here").scope == "test_standin"
    assert models.build(dict(type="mmdet.make_head", size=3)) == 6
    assert detectors.get("mmcv.Base") is Base
    assert detectors.get("Base") is None
    config = dict(type="Base")
    assert build_from_cfg(config, models, dict(depth=5)).depth == 5
    assert config == dict(type="Base")
    with pytest.raises(AssertionError, match="scope mmdet exists in models registry"):
        Registry("models", parent=models, scope="mmdet")
    with pytest.raises(KeyError, match="not in the models registry; did you mean 'Base'"):
        models.build(dict(type="Bas"))
    with pytest.raises(KeyError, match=rf"X .* own registry of test_standin \({__file__}\)"):
        Registry("own").build(dict(type="X"))
    with pytest.raises(TypeError, match=r"takes no|unexpected"):
        models.build(dict(type="Base", depth=1, deep=2))
    own = Registry("own", build_func=lambda cfg, registry: (registry.name, cfg))
    assert own.build(3) == ("own", 3)
    assert Registry("child", parent=own, scope="x").build(4) == ("child", 4)


def test_builds_of_hooks_are_mmcvs_exact_ones_and_adapters_the_native() -> None:
    from mmcv.runner import HOOKS, EMAHook

    assert type(HOOKS.build(dict(type="EMAHook"))) is EMAHook
    [hook] = HookAdapter([dict(type="EMAHook")]).hooks
    assert type(hook) is lightning_hooks.EMAHook


def test_the_table_of_real_hooks_is_that_of_the_cases() -> None:
    from table import README, text

    assert README.read_text(encoding="utf-8") == text(), "run python tests/old_code/table.py"


@needs_lite
def test_a_config_file_with_bases(tmp_path: Path) -> None:
    from mmcv import Config

    (tmp_path / "base.py").write_text("model = dict(depth=50, head=dict(a=1, b=2))\nlr = 0.1\n")
    (tmp_path / "config.py").write_text(
        "_base_ = './base.py'\nmodel = dict(depth=101, head=dict(_delete_=True, c=3))\n"
    )
    config = Config.fromfile(str(tmp_path / "config.py"))
    assert config.model.depth == 101
    assert config.model.head == dict(c=3)
    assert config.lr == 0.1
    config.merge_from_dict({"model.head.c": 4})
    config.dump(str(tmp_path / "out.py"))
    again = Config.fromfile(tmp_path / "out.py")
    assert again._cfg_dict == config._cfg_dict
    assert Config.fromstring("a = dict(b=1)", ".py").a.b == 1
    copied = pickle.loads(pickle.dumps(config))
    assert copied.model.head.c == 4


@needs_lite
def test_scripts_merge_dicts_by_mmcvs_private_function() -> None:
    from mmcv import Config

    base = dict(interval=1, inner=dict(a=1, b=2))
    merged = Config._merge_a_into_b(dict(inner=dict(b=3), out="x.pkl"), base)
    assert merged == dict(interval=1, inner=dict(a=1, b=3), out="x.pkl")
    assert base == dict(interval=1, inner=dict(a=1, b=2))
    assert Config._merge_a_into_b({"0": dict(a=2)}, [dict(a=1)], True) == [dict(a=2)]
    with pytest.raises(TypeError, match="_delete_"):
        Config._merge_a_into_b(dict(interval=dict(a=1)), base)


def test_a_hook_of_the_stand_in_in_a_trainer_is_the_native_one(tmp_path: Path) -> None:
    from mmcv.runner import CheckpointHook

    from support.training import TinyModule, make_loader, make_trainer

    class Old(CheckpointHook):
        pass

    adapter = HookAdapter([Old(interval=1, max_keep_ckpts=1)], work_dir=str(tmp_path / "work"))
    make_trainer(tmp_path, adapter, max_epochs=2).fit(TinyModule(), make_loader(), make_loader())
    import torch

    [path] = [p for p in (tmp_path / "work").glob("*.pth") if not p.is_symlink()]
    assert path.name == "epoch_2.pth"
    assert "pytorch-lightning_version" in torch.load(path, weights_only=False)


@needs_lite
def test_gradients_go_through_an_empty_tensor_of_another_shape() -> None:
    from mmcv.cnn.bricks.wrappers import NewEmptyTensorOp

    given = torch.empty(0, 3, requires_grad=True)
    made = NewEmptyTensorOp.apply(given, [0, 5, 5])
    assert made.shape == (0, 5, 5)
    made.sum().backward()
    assert given.grad.shape == (0, 3)
