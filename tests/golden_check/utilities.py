"""Call every public name of mmcv's layers, images, videos and drawing on random inputs.

Run in two processes, with real mmcv and with the stand-in: ``utilities.py OUT [LITE]``. The names
come from ``tests/golden/names.json``, and the arguments follow from the parameters' names.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import inspect
import io
import json
import os
import pickle
import random
import sys
import types
import warnings
from collections.abc import Iterator
from enum import EnumMeta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from random_arguments import SPECIAL, VARIED, Whole, argument, image
from torch import nn

ROOMS = ("mmcv.arraymisc", "mmcv.cnn", "mmcv.image", "mmcv.video", "mmcv.visualization")
NAMES = Path(__file__).parents[1] / "golden" / "names.json"
LEFT_OUT = {
    "BaseInit": "initializes nothing, and mmcv's is no function at all",
    "NewEmptyTensorOp": "an autograd function: see test_standin.py",
    "supported_backends": "a list",
}


def walk() -> Iterator[tuple[str, str]]:
    """Yield the module and name of each class and function defined in the covered packages."""
    for module, names in json.loads(NAMES.read_text(encoding="utf-8"))["cases"].items():
        if module.startswith(ROOMS):
            for name, what in names.items():
                if isinstance(what, dict) and name not in LEFT_OUT:
                    yield module, name


def calls(name: str, called: Any) -> Iterator[dict[str, Any]]:
    """Yield the arguments of each call; ``...`` stands for a random argument by parameter name."""
    parameters = inspect.signature(called).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = {p.name: ... for p in named if p.default is p.empty}
    for base in SPECIAL.get(name, [required]):
        yield base
        more = ["bias", "bias_prob", "layer"] if name.endswith("Init") else []
        for parameter in dict.fromkeys([p.name for p in named] + more):
            for value in VARIED.get(parameter, ()):
                yield {**base, parameter: value}


def result(name: str, called: Any, given: dict[str, Any]) -> Any:
    """Call a function; return the result and the changed arguments, or the error's class."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    made = {p: argument(name, p) if value is ... else value for p, value in given.items()}
    shown: list[Any] = []
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()) as printed,
            mock.patch("cv2.imshow", lambda window, img: shown.append(img)),
            mock.patch("cv2.waitKey", return_value=27),
            mock.patch("cv2.getWindowProperty", return_value=0.0),
            mock.patch("cv2.destroyWindow"),
        ):
            found = plain(called(**made))
    except Exception as error:
        return next(c.__name__ for c in type(error).__mro__ if c.__module__ in ("builtins", "cv2"))
    changed = [v for v in made.values() if isinstance(v, (np.ndarray, torch.Tensor))]
    modules = [part for v in made.values() if isinstance(v, nn.Module) for part in v.modules()]
    states = [(plain(dict(m.state_dict())), getattr(m, "__flops__", None)) for m in modules]
    printed_text = "" if "elapsed" in printed.getvalue() else printed.getvalue()
    return found, changed, states, shown, printed_text


def plain(value: Any) -> Any:
    """Return a value that can be pickled and compared."""
    if isinstance(value, torch.Tensor) and value.numel() > 10_000:
        digest = hashlib.sha256(value.detach().contiguous().numpy().tobytes())
        return (*value.shape, digest.hexdigest())
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, nn.Module):
        return ran(value)
    if isinstance(value, dict):
        return {getattr(key, "__name__", key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, EnumMeta):
        return [str(one) for one in value]
    if value is None or isinstance(value, (np.ndarray, np.generic, int, float, str, bytes)):
        return value
    if isinstance(value, types.FunctionType):
        return plain(value(image(5, 6, 3))) if value.__name__ == "convert_color" else value.__name__
    return type(value).__name__, used(value)


def used(value: Any) -> Any:
    """Use an object other than a module; return the results."""
    if hasattr(value, "_get_init_info"):
        module = Whole()
        value(module)
        # mmcv has a space too much
        return plain(module.state_dict()), value._get_init_info().replace(" =", "=")
    if type(value).__name__ == "VideoReader":
        value.cvt2frames("read", show_progress=False)
        return [len(value), *value[:2], value.get_frame(3), value.fps, sorted(os.listdir("read"))]
    if type(value).__name__ == "Cache":
        for key in "abc":
            value.put(key, key * 2)
        return [value.get(key, None) for key in "abc"] + [value.size, value.capacity]
    public = {k: v for k, v in sorted(vars(value).items()) if not k.startswith("_")}
    known = (bool, int, float, str, dict, list)
    return {k: plain(v) for k, v in public.items() if isinstance(v, known)}


INPUTS = [(2, 8, 9, 10), (2, 6, 8), (2, 8, 5, 6, 7), (2, 8, 12), (2, 3, 64, 64), (2, 8)]


def ran(module: nn.Module) -> Any:
    """Return a module's text, state, outputs and gradients on the first fitting input."""
    found = [str(module), plain(dict(module.state_dict())), module.training]
    for shape in INPUTS:
        x = torch.rand(*shape, requires_grad=True)
        torch.manual_seed(1)
        try:
            output = module(x * 1)
        except Exception:
            continue
        last = output[-1] if isinstance(output, (tuple, list)) else output
        last.sum().backward()
        gradients = [p.grad for p in module.parameters()]
        module.eval()  # mmcv's ResNet.eval() returns None
        return [*found, shape, *map(plain, (output, x.grad, gradients, module(x * 1)))]
    return found


HELPERS = (
    "is_list_of([1, 2], int), is_list_of((1, 2), int), is_tuple_of(('a', 1), (str, int))",
    "is_seq_of([], int), is_str(b''), has_method([], 'append'), is_filepath(Path('a'))",
    "slice_list([1, 2, 3, 4], 2), slice_list([1, 2, 3, 4], [1, 3]), concat_list([[1], [2, 3]])",
    "list_cast(['1', '2'], int), tuple_cast([1.5, 2], int), to_2tuple(3), to_2tuple([3, 4])",
    "sorted(scandir('frames')), sorted(scandir('.', ('.PTH', '.jpg'), True, False))",
    "track_progress(abs, [-1, 2]), list(track_iter_progress((iter([3]), 1)))",
    "track_iter_progress({1: 2}.items()).__next__(), track_parallel_progress(abs, [-1, 3], 2)",
    "list_from_file('words', 'p/', 1, 2), dict_from_file('words', file_client_args={})",
    "digit_version('1.13.0+cu117'), digit_version('2.0.0rc1'), Timer().is_running",
    "[dump(VALUE, file_format=f) for f in ('json', 'yml', 'pickle')]",
    "[(dump(VALUE, f'x.{f}'), load(f'x.{f}')) for f in ('json', 'yaml', 'pkl')]",
    "dump({1, 2}, 'x.json'), load('x.json'), load(open('x.json'), 'json')",
    "[(dict(n.state_dict()), n(NUMBERS).detach()) for n in SYNCED], [str(n) for n in SYNCED]",
)
"""Calls of helpers of ``mmcv.utils``, ``mmcv.fileio`` and ``mmcv.cnn``."""

OPTIONS = ("1", "a", "[1,2]", "(1,a)", "a,b", "true", "[(a,1),[2,b]]", "1e-3", "none", "[(a,b),[1")
CONFIGS = {
    "base.py": "model = dict(z=1, neck=dict(type='B', channels=[1, 2]), size=(3, 4))\nlr = 0.1\n",
    "top.py": """
import os.path as osp
_base_ = './base.py'
model = dict(neck=dict(_delete_=True, type='C'), head=dict(type='D', a=dict()))
size, name = {{ _base_.model.size }}, '{{ fileBasenameNoExtension }}'
""",
    "top.yaml": "_base_: top.py\nlr: {_delete_: true, policy: fixed}\n",
}


def configs() -> Iterator[tuple[str, Any]]:
    """Yield the results of Config: reading files, merging options and printing."""
    from mmcv import Config, DictAction

    for name, text in CONFIGS.items():
        Path(name).write_text(text)
    for name in CONFIGS:
        config = Config.fromfile(name)
        yield name, [config._cfg_dict.to_dict(), config.text.replace(os.getcwd(), "")]
        config.merge_from_dict({"model.z": 2, "model.new.a": 3, "model.neck.channels": [4]})
        again = Config.fromstring(config.pretty_text, ".py")
        yield f"{name} again", [again._cfg_dict.to_dict(), str(config), config.get("no", 3)]
        yield f"{name} pop", [config.pop("lr"), config._cfg_dict.pop("lr", 5)]
        with contextlib.suppress(KeyError):
            yield f"{name} pop", config._cfg_dict.pop("lr")
        yield f"{name} missing", hasattr(config.model, "nothing")
    for text in OPTIONS:
        parser = argparse.ArgumentParser()
        parser.add_argument("--o", nargs="+", action=DictAction)
        try:
            yield text, parser.parse_args(["--o", f"a.b={text}"]).o
        except AssertionError as error:
            yield text, str(error)


def main(out: str, *lite: str) -> None:
    """Write the results of all calls by name."""
    if lite:
        from lightning_hooks import standin

        sys.path.insert(0, lite[0])
        standin.install()
    warnings.simplefilter("ignore")
    importlib.import_module("oracle" if not lite else "mmcv")
    import mmcv

    torch.manual_seed(0)
    np.random.seed(0)
    torch.save(Whole().state_dict(), "weights.pth")
    importlib.import_module("mmcv.image").imwrite(image(24, 32, 3), "frames/000000.jpg")
    found = {}
    for module, name in walk():
        called = getattr(importlib.import_module(module), name)
        found[f"{module}.{name}"] = [(str(c), result(name, called, c)) for c in calls(name, called)]
    helpers = [*mmcv.utils.__all__, "to_2tuple"]
    scope = {"Path": Path, **{n: getattr(mmcv.utils, n) for n in helpers}}
    scope |= {n: getattr(mmcv, n) for n in ("list_from_file", "dict_from_file", "dump", "load")}
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(4)))
    scope["SYNCED"] = [*mmcv.cnn.utils.revert_sync_batchnorm(synced)]
    scope |= {
        "VALUE": {"a": [1, 2.5], "b": {"c": None}},
        "NUMBERS": torch.arange(200.0).view(2, 4, 5, 5),
    }
    Path("words").write_text("a 1\nb 2 3\nc 4\nd 5\n")
    with contextlib.redirect_stdout(io.StringIO()):
        found["helpers"] = [(text, eval(text, scope)) for text in HELPERS]
    found["configs"] = list(configs())
    with open(out, "wb") as file:
        pickle.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
