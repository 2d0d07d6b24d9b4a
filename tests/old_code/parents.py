"""Recording stubs of imports that hook files of real packages need and that do not run here.

The stubs are test functions, dataset helpers and clients of services. Real mmcv and the stand-in
use the same stubs, so the calls of a hook can be compared.
"""

from __future__ import annotations

import importlib
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from packages import load, stub

CALLS: list[Any] = []
"""The recorded calls of hooks to clients."""


def test_scores(model: Any, loader: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Return the scores of each sample, in evaluation mode, as mmcv's test functions do."""
    model.eval()
    inner = getattr(model, "module", model)
    with torch.no_grad():
        return [row for batch in loader for row in inner.scores(batch["img"]).numpy()]


def accuracy(model: Any, *loaders: Any, **kwargs: Any) -> dict[str, float]:
    """Return the scores of the model."""
    loader = next(one for one in loaders if hasattr(one, "dataset"))
    found: dict[str, float] = loader.dataset.evaluate(test_scores(model, loader))
    return found


class Extractor:
    """A stub of mmselfsup's extractor of training features."""

    def __init__(self, **kwargs: Any) -> None:
        CALLS.append(["Extractor", sorted(kwargs)])

    def __call__(self, runner: Any) -> Any:
        """Return a row for each sample."""
        return np.arange(32, dtype=np.float32).reshape(16, 2)


class Kmeans:
    """A stub of mmselfsup's clustering."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.labels: Any = None

    def cluster(self, features: Any, verbose: bool = False) -> None:
        """Assign labels in turn."""
        self.labels = np.arange(len(features)) % self.k


class Metric:
    """A stub of mmgen's FID metric."""

    name, num_real_feeded = "fid", 0

    def __init__(self, num_images: int) -> None:
        self.num_images = num_images
        self._result_dict: dict[str, float] = {}

    def prepare(self) -> None:
        """Do nothing."""

    def feed(self, images: Any, mode: str) -> int:
        """Record the call."""
        CALLS.append(["feed", mode, list(images.shape)])
        self.num_real_feeded += (mode == "reals") * len(images)
        return len(images)

    def summary(self) -> None:
        """Set a score that improves with each call."""
        self._result_dict["fid"] = 10.0 - len(CALLS)

    def clear(self) -> None:
        """Do nothing."""


class Client:
    """A stub of petrel_client's client."""

    def __init__(self, path: str) -> None:
        CALLS.append(["Client", path])

    def put(self, path: str, data: bytes) -> None:
        """Record the call."""
        CALLS.append(["put", Path(path).name])


class Noted:
    """A stub of a wandb object that records every method call."""

    id = "run"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and type(self).__name__ == "Artifact":
            CALLS.append(["Artifact", *args, kwargs["type"], sorted(kwargs.get("metadata") or {})])
        self.config: dict[str, Any] = {}
        self.data: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            CALLS.append(
                [name, *(a for a in args if isinstance(a, str)), *kwargs.get("aliases", ())]
            )
            return self

        return call

    def add_data(self, *row: Any) -> None:
        """Add a row to a table."""
        CALLS.append(["add_data", *(x for x in row if isinstance(x, (str, int)))])
        self.data.append(row)

    def get_index(self) -> list[int]:
        """Return the row numbers."""
        return [*range(len(self.data))]

    def add(self, table: Any, name: str) -> None:
        """Put a table into an artifact."""
        CALLS.append(["add", name])
        self.table = table

    def get(self, name: str) -> Any:
        """Return the table."""
        return self.table

    def add_file(self, path: str, name: Any = None) -> None:
        """Add an existing file to an artifact."""
        assert Path(path).is_file(), path
        CALLS.append(["add_file", Path(path).name])

    def log(self, row: dict[str, Any], step: Any = None, commit: Any = None) -> None:
        """Record numbers."""
        untold = ("time", "data_time", "eval_iter_num")  # not sent by our loggers
        told = {k: v for k, v in row.items() if k.rpartition("/")[2] not in untold}
        CALLS.append(["log", step, told])

    def finish(self, exit_code: int = 0) -> None:
        """Record the end of the run once."""
        if ["finish"] not in CALLS:
            CALLS.append(["finish"])

    join = finish  # the old name


def _wandb() -> types.ModuleType:
    module = types.ModuleType("wandb")
    module.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    run: Any = type("Run", (Noted,), {})()

    def init(**kwargs: Any) -> Any:
        CALLS.append(["init", kwargs.get("project")])
        module.run = run  # type: ignore[attr-defined]
        return run

    parts = {name: type(name, (Noted,), {}) for name in ("Artifact", "Table", "Image", "Classes")}
    error = type("UsageError", (Exception,), {})
    calls = {n: getattr(run, n) for n in ("log", "log_artifact", "finish", "join", "save")}
    settings: Any = type("Settings", (), {"__init__": lambda self, **kwargs: None})
    errors = types.SimpleNamespace(UsageError=error, AuthenticationError=error)
    module.__dict__.update(
        parts, **calls, init=init, run=None, Settings=settings, errors=errors, config=run.config,
        __version__="0.12.10", define_metric=run.define_metric,
    )  # fmt: skip
    return module


def _module(name: str, **names: Any) -> None:
    sys.modules[name] = module = types.ModuleType(name)
    module.__dict__.update(names)


def _save_image(image: Any, path: str, **kwargs: Any) -> None:
    CALLS.append(["save_image", list(image.shape), round(float(image.sum()), 2), sorted(kwargs)])
    Path(path).write_bytes(b"image")


def _mmdet(source: Path) -> None:
    switch = load(source, "mmdet/core/hook/yolox_mode_switch_hook.py").YOLOXModeSwitchHook
    sys.modules["mmdet.core"].YOLOXModeSwitchHook = switch  # type: ignore[attr-defined]
    _module("mmdet.core.mask.structures", polygon_to_bitmap=None)


def _mmflow(source: Path) -> None:
    _module("mmflow.core.evaluation.evaluation", single_gpu_online_evaluation=accuracy,
            multi_gpu_online_evaluation=None)  # fmt: skip


def _mmfewshot(source: Path) -> None:
    few = importlib.import_module("mmfewshot.detection.apis")
    few.single_gpu_test, few.single_gpu_model_init = test_scores, test_scores
    shots = importlib.import_module("mmfewshot.classification.apis")
    shots.Z_SCORE = {0.95: 1.96}
    shots.single_gpu_meta_test = lambda model, number, *loaders, **kwargs: {
        "accuracy_mean": accuracy(model, *loaders)["acc"]
    }


def _mmselfsup(source: Path) -> None:
    utils = importlib.import_module("mmselfsup.utils")
    utils.Extractor, utils.clustering = Extractor, types.SimpleNamespace(Kmeans=Kmeans)
    utils.get_root_logger = lambda: None


def _mmgen(source: Path) -> None:
    _module("mmgen.core.registry", build_metric=lambda config: Metric(config["num_images"]))


def _mmaction(source: Path) -> None:
    norm = load(source, "mmaction/models/common/sub_batchnorm3d.py").SubBatchNorm3D
    importlib.import_module("mmaction.models").SubBatchNorm3D = norm


def _mmedit(source: Path) -> None:
    importlib.import_module("mmedit.utils").deprecated_function = lambda *args: (
        lambda method: method
    )


def _collected(function: Any, loader: Any, length: int) -> dict[str, Any]:
    """Return the concatenated results of a function over all batches."""
    with torch.no_grad():
        found = [function(**batch) for batch in loader]
    return {key: np.concatenate([one[key].numpy() for one in found]) for key in found[0]}


class Batches(torch.utils.data.DataLoader[Any]):
    """openmixup's loader of a dataset: batches as dicts."""

    def __iter__(self) -> Any:
        for images, _ in super().__iter__():
            yield {"img": images}


def _openmixup(source: Path) -> None:
    utils = importlib.import_module("openmixup.utils")
    for file in ("registry", "logger"):
        utils.__dict__.update(vars(load(source, f"openmixup/utils/{file}.py")))
    utils.nondist_forward_collect, utils.dist_forward_collect = _collected, None
    importlib.import_module("openmixup").datasets = types.SimpleNamespace(
        build_dataloader=lambda data, size, workers, **kwargs: Batches(data, size)
    )
    importlib.import_module("openmixup.models.utils")
    parts = importlib.import_module("openmixup.third_party")
    parts.clustering = types.SimpleNamespace(Kmeans=Kmeans)


def _copied(source: str, target: str) -> None:
    assert Path(source).is_file(), source
    CALLS.append(["safe_copy", re.sub(r"[\d_]{15}", "<time>", target)])


def _easycv(source: Path) -> None:
    for name in ("registry", "dist_utils", "py_util", "logger"):
        load(source, f"easycv/utils/{name}.py")
    _module("easycv.file", io=types.SimpleNamespace(safe_copy=_copied))
    _module("easycv.utils.config_tools", validate_export_config=lambda config: config)
    _module("easycv.apis.export", export=lambda config, **kwargs: CALLS.append(
        ["export", Path(kwargs["filename"]).name, type(kwargs["model"]).__name__]))  # fmt: skip
    importlib.import_module("easycv.apis").single_gpu_test = test_scores
    evaluation = load(source, "easycv/hooks/eval_hook.py")
    evaluation.DaliLoaderWrapper = Client  # type: ignore[attr-defined]  # exists only with a GPU
    dino = load(source, "easycv/hooks/dino_hook.py")
    dino.time = types.SimpleNamespace(sleep=lambda seconds: None)  # type: ignore[attr-defined]


PARTS = (_mmdet, _mmflow, _mmfewshot, _mmselfsup, _mmgen, _mmaction, _mmedit,
         _openmixup, _easycv)  # fmt: skip


def install(source: Path) -> None:
    """Install the stubs under the module names imported by the available packages' hook files."""
    stub(source)
    memory = types.SimpleNamespace(available=1e9, used=1e9, percent=1, total=2e9)
    _module("psutil", swap_memory=lambda: memory, virtual_memory=lambda: memory)
    _module("memory_profiler", memory_usage=lambda: [1.0])
    _module("pycocotools.mask")
    _module("pycocotools", mask=sys.modules["pycocotools.mask"])
    _module("torchvision.utils", save_image=_save_image)
    _module("cv2")
    _module("petrel_client.client", Client=Client)
    _module("petrel_client", client=sys.modules["petrel_client.client"])
    sys.modules["wandb"] = _wandb()
    there = {package.name for package in source.iterdir()}
    tested = {"mmdet", "mmseg", "mmpose", "mmaction", "mmedit", "mmtrack", "mmhuman3d"}
    for package in there & tested:
        importlib.import_module(f"{package}.apis").single_gpu_test = test_scores
    for package in there & {"mmdet", "mmseg"}:
        hooks = load(source, f"{package}/core/evaluation/eval_hooks.py")
        core = importlib.import_module(f"{package}.core")
        core.EvalHook, core.DistEvalHook = hooks.EvalHook, hooks.DistEvalHook
    for part in PARTS:
        if part.__name__[1:] in there:
            part(source)
