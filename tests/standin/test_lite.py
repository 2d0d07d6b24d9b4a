"""Modules from the files of OpenMMLab's wheels; golden_check compares the modules with mmcv."""

from __future__ import annotations

import importlib
import pickle
import re
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from lightning_hooks import standin
from lightning_hooks.standin.finder import StandinModule
from lightning_hooks.standin.lite import LITE_VERSION, MMENGINE_VERSION
from lightning_hooks.standin.name_table import LITE
from support.paths import ROOT
from support.processes import run_program
from support.standin import needs_lite

pytestmark = needs_lite


def test_the_table_lists_the_names_of_the_files() -> None:
    for module, names in LITE.items():
        loaded = importlib.import_module(module)
        assert loaded.__file__ is not None
        assert {*names.split()} <= vars(loaded).keys(), module


def test_importing_the_layers_registers_them_in_the_registries_of_mmcv_1() -> None:
    import mmcv.cnn
    from mmcv.cnn.bricks import registry, transformer
    from mmcv.utils import build_from_cfg

    assert mmcv.cnn.ConvModule is mmcv.cnn.PLUGIN_LAYERS.get("ConvModule")
    assert "ConvModule" not in mmcv.cnn.CONV_LAYERS
    for upsampling in ("nearest", "bilinear", "deconv", "deconv3d", "pixel_shuffle"):
        assert upsampling in mmcv.cnn.UPSAMPLE_LAYERS
    attention = transformer.build_attention(
        dict(type="MultiheadAttention", embed_dims=4, num_heads=2)
    )
    assert type(attention) is registry.ATTENTION.get("MultiheadAttention")
    assert "FFN" in registry.FEEDFORWARD_NETWORK
    assert "FFN" not in registry.TRANSFORMER_LAYER
    assert build_from_cfg(dict(type="FFN", embed_dims=4), registry.FEEDFORWARD_NETWORK)
    with pytest.raises(KeyError, match="Unrecognized layer type Conv4d"):
        mmcv.cnn.build_conv_layer(dict(type="Conv4d"), 1, 1, 1)
    with pytest.raises(KeyError, match="Unrecognized norm type XN"):
        mmcv.cnn.build_norm_layer(dict(type="XN"), 1)


def test_the_few_changes_since_1_7_2_are_undone(tmp_path: Path) -> None:
    import mmcv
    from mmcv.cnn import ConvModule, RFSearchHook
    from mmcv.cnn.bricks.transformer import FFN

    ffn = FFN(4, 8, ignored_by_1_x=True)
    assert [name for name, _ in ffn.named_children()] == ["activate", "layers", "dropout_layer"]
    assert ffn.act_cfg == dict(type="ReLU", inplace=True)
    layer = ConvModule(3, 3, 1, norm_cfg=dict(type="BN")).eval()
    del layer.efficient_conv_bn_eval_forward  # as pickled by mmcv 1.x
    assert layer(torch.ones(1, 3, 2, 2)).shape == (1, 3, 2, 2)
    config = dict(search=dict(num_branches=2, expand_rate=0.5, max_step=1, search_interval=1))
    RFSearchHook(mode="fixed_single_branch", config=config).after_train_iter(None)
    path = tmp_path / "image.png"
    mmcv.imwrite(np.zeros((2, 2, 3), np.uint8), str(path))
    assert mmcv.imread(path, file_client_args=dict(backend="disk")).shape == (2, 2, 3)


def test_images_are_mmcvs_own(tmp_path: Path) -> None:
    import cv2
    import mmcv

    image = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    padded = mmcv.impad(image, shape=(6, 5), pad_val=7)
    assert padded[-1, -1].tolist() == [7, 0, 0]  # a number is for the first channel only
    path = str(tmp_path / "image.png")
    mmcv.imwrite(image, path)
    read = mmcv.imread(path, flag="color_ignore_orientation", channel_order="rgb")
    assert np.array_equal(read, image)  # this flag leaves the image unchanged
    mean, std = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
    wanted = cv2.cvtColor(np.float32(image), cv2.COLOR_BGR2RGB)
    cv2.subtract(wanted, np.float64(mean.reshape(1, -1)), wanted)
    cv2.multiply(wanted, 1 / np.float64(std.reshape(1, -1)), wanted)
    assert np.array_equal(mmcv.imnormalize(image, mean, std), wanted)


def test_files_of_values_run_no_code_and_suggest_a_format(tmp_path: Path) -> None:
    import mmcv

    path = tmp_path / "x.yaml"
    mmcv.dump({"a": [1, 2.5]}, path)
    assert mmcv.load(str(path), file_client_args=dict(backend="disk")) == {"a": [1, 2.5]}
    path.write_text("!!python/object/apply:os.getcwd []")
    with pytest.raises(yaml.YAMLError, match="could not determine a constructor"):
        mmcv.load(path)
    with pytest.raises(TypeError, match="yaaml; did you mean 'yaml'"):
        mmcv.load("x.yaaml")


def test_synchronized_batch_norms_become_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmcv.cnn.utils import revert_sync_batchnorm
    from mmcv.ops import SyncBatchNorm

    monkeypatch.setattr("torch.distributed.get_world_size", lambda group=None: 1)
    norms = [torch.nn.SyncBatchNorm(3, eps=0.5), SyncBatchNorm(3, momentum=0.2)]
    model = torch.nn.Sequential(*norms).eval()
    plain = revert_sync_batchnorm(model)
    assert [(norm.eps, norm.momentum) for norm in plain] == [(0.5, 0.1), (1e-05, 0.2)]
    assert [part.training for part in plain.modules()] == [False] * 3
    assert plain.state_dict().keys() == model.state_dict().keys()
    assert plain(torch.ones(2, 3)).shape == (2, 3)  # of any number of dimensions


def test_classes_pickle_and_stay_the_same_when_the_stand_in_comes_back() -> None:
    from mmcv.cnn import ConvModule, fuse_conv_bn

    assert ConvModule.__module__ == "mmcv.cnn.bricks.conv_module"
    layer = ConvModule(3, 4, 1)
    standin.uninstall()
    assert layer(torch.ones(1, 3, 2, 2)).shape == (1, 4, 2, 2)
    assert [name for name, one in sys.modules.items() if isinstance(one, StandinModule)] == []
    standin.install()
    again = pickle.loads(pickle.dumps(layer))
    assert type(again) is ConvModule
    import mmcv.cnn.utils.fuse_conv_bn

    assert mmcv.cnn.utils.fuse_conv_bn is fuse_conv_bn
    assert importlib.import_module("mmcv.cnn").ConvModule is ConvModule


def test_an_error_within_shows_the_lines_of_the_file() -> None:
    import mmcv
    from mmcv.cnn.bricks.transformer import FFN

    with pytest.raises(AssertionError, match="num_fcs should be no less") as caught:
        FFN(num_fcs=1)
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert frame.filename.endswith(str(Path("mmcv", "cnn", "bricks", "transformer.py")))
    assert str(frame.line).startswith("assert num_fcs >= 2")
    with pytest.raises(ValueError, match="backend: x is not supported") as caught_too:
        mmcv.imresize(np.zeros((2, 2)), (4, 4), backend="x")
    frame = traceback.extract_tb(caught_too.value.__traceback__)[-1]
    assert str(frame.line).startswith("raise ValueError")


def test_a_list_of_configs_becomes_a_sequential_that_initializes_its_parts() -> None:
    from mmcv.cnn import MODELS
    from mmcv.runner import BaseModule, Sequential

    class Neck(BaseModule):
        def init_weights(self) -> None:
            self.was_initialized = True

    made = MODELS.build([dict(type=Neck), dict(type=Neck)])
    assert type(made) is Sequential
    made.init_weights()
    assert [neck.was_initialized for neck in made] == [True, True]


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt"])
@pytest.mark.parametrize(
    ("wheel", "version"), [("mmcv-lite", LITE_VERSION), ("mmengine", MMENGINE_VERSION)]
)
def test_the_release_that_is_read_is_the_one_that_is_pinned(
    wheel: str, version: str, file: str
) -> None:
    pinned = re.findall(rf"{wheel}==([\d.]+)", (ROOT / file).read_text(encoding="utf-8"))
    assert pinned == [version]


PROGRAM = """
import subprocess
import sys
{before}
from lightning_hooks import standin
standin.install()
import mmcv, mmcv.runner, mmcv.cnn
for statement in {statements}:
    try:
        exec(statement)
    except (AttributeError, ImportError, NotImplementedError) as error:
        print(error)
needless = {{"mmengine", "addict", "yapf", "termcolor"}}
print(needless & {{name.partition(".")[0] for name in sys.modules}})
"""


def errors(before: str, *statements: str) -> list[str]:
    """Return the errors of statements that need a missing package."""
    program = textwrap.dedent(PROGRAM).format(before=before, statements=statements)
    *found, needless = run_program(program).splitlines()
    assert needless == "set()"
    assert len(found) == len(statements)
    return found


def test_what_is_missing_is_named_with_what_to_install() -> None:
    hidden = "sys.modules['cv2'] = sys.modules['PIL'] = None"
    error, again = errors(hidden, "mmcv.imread", "from mmcv.video import VideoReader")
    assert "mmcv.image" in error
    assert "mmcv.video" in again
    for one in (error, again):
        assert one.endswith("pip install opencv-python-headless pillow")


HIDE_MMENGINE = """
from lightning_hooks.standin import lite
lite.find_installed = lambda *_: None
"""
HIDE_MMCV = """
from lightning_hooks.standin import finder
finder.find_installed = lambda *_: None
"""


TRAINING = """
import logging, sys
import torch
from torch.utils.data import DataLoader
from lightning_hooks import standin
standin.install()
from mmcv.runner import HOOKS, EpochBasedRunner, EvalHook, Hook
from mmcv.utils import Config, is_list_of, mkdir_or_exist

@HOOKS.register_module()
class Counts(Hook):
    def after_train_iter(self, runner):
        print(runner.iter)

class Model(torch.nn.Linear):
    def train_step(self, data, optimizer):
        return dict(loss=self(x=data).sum(), log_vars={}, num_samples=1)

    def forward(self, x, return_loss=True):
        return super().forward(x) if return_loss else [0.5]

class Data(list):
    def evaluate(self, results, logger=None):
        print(results)
        return {}

model = Model(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
logger = logging.getLogger("silent")
runner = EpochBasedRunner(model, None, optimizer, WORK_DIR, logger, max_epochs=1)
runner.register_hook_from_cfg(dict(type="Counts"))
runner.register_optimizer_hook(dict(grad_clip=None))
runner.register_hook(EvalHook(DataLoader(Data([dict(x=torch.ones(1))]))))
runner.run([[torch.ones(1)] * 2], [("train", 1)])
print({"mmengine", "cv2", "yapf"} & sys.modules.keys())
"""


@pytest.mark.parametrize("hidden", [HIDE_MMENGINE, HIDE_MMENGINE + HIDE_MMCV])
def test_without_a_wheel_a_use_says_what_to_install(hidden: str) -> None:
    for error in errors(
        hidden,
        "mmcv.cnn.ConvModule(1, 2, 3)",
        "from mmcv.cnn import ConvModule; ConvModule()",
        "import mmcv.cnn.bricks.transformer; mmcv.cnn.bricks.transformer.FFN()",
        "mmcv.imread('x.png')",
        "from mmcv.video import VideoReader; type('Mine', (VideoReader,), {})()",
        "from mmcv.ops import nms, RoIAlign; nms(1, 2)",
        "from mmcv import Config; Config.fromfile('config.py')",
        "from mmcv.utils import is_list_of, mkdir_or_exist; mkdir_or_exist('folder')",
        "from mmcv.cnn import INITIALIZERS, kaiming_init; INITIALIZERS.build({})",
        "from mmcv.cnn.utils import revert_sync_batchnorm; revert_sync_batchnorm(1)",
        "from mmcv.fileio import JsonHandler, load; mmcv.dump(1, 'x.json')",
    ):
        assert "pip install mmcv-lite==2.2.0 mmengine==0.10.7 torchvision" in error
        assert "pip install --no-deps mmcv-lite==2.2.0 mmengine==0.10.7 and pip install" in error


def test_hook_files_runners_and_evaluations_need_no_wheel(tmp_path: Path) -> None:
    program = f"WORK_DIR = {str(tmp_path)!r}\n{HIDE_MMENGINE}{HIDE_MMCV}{TRAINING}"
    lines = run_program(program).splitlines()
    assert [line for line in lines if " " not in line] == ["0", "1", "[0.5]", "set()"]
    [hint] = [line for line in lines if "tests show no progress" in line]
    assert "pip install mmcv-lite==2.2.0 mmengine==0.10.7" in hint


def test_a_script_that_does_not_train_imports_no_lightning() -> None:
    script = """
        import sys
        from lightning_hooks import standin
        standin.install()
        from mmcv import Config, DictAction, ProgressBar, imread
        from mmcv.cnn import ConvModule, build_norm_layer, fuse_conv_bn
        from mmcv.ops import nms
        from mmcv.parallel import MMDataParallel, collate, scatter
        from mmcv.runner import BaseModule, auto_fp16, build_optimizer, get_dist_info, init_dist
        from mmcv.runner import load_checkpoint, save_checkpoint, wrap_fp16_model
        found = {name.partition(".")[0] for name in sys.modules}
        print(*found & {"lightning", "pytorch_lightning", "torchmetrics"})
        from mmcv.runner import HOOKS, RUNNERS
        assert HOOKS.get("RFSearchHook").__module__ == "mmcv.cnn.rfsearch.search"
        assert {"EpochBasedRunner", "IterBasedRunner"} <= {*RUNNERS.module_dict}
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stderr
