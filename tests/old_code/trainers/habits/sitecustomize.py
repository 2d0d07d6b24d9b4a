"""Run at Python's start: torchvision without a GPU and, for real mmcv, removed names and operators.

torchvision's wheel on PyPI is built for GPUs and fails to import without the GPU libraries, so the
missing operators are declared. mmrotate moves its model to a GPU and lists files in disk order;
here the model stays on the CPU, and files are sorted by name. mmgen resumes onto a GPU; here the
weights stay on the CPU. mmgen's archive on PyPI lacks the folder ``ada``, which the tests do not
need. The rest is only for real mmcv 1.7.2: names that the stand-in also provides for current numpy
and torch, and operators in plain torch.
"""

import collections
import collections.abc
import glob
import importlib.abc
import importlib.machinery
import os
import sys
import types

import numpy as np
import packaging.version
import torch

_SCHEMA = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    _SCHEMA.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

torch.nn.Module.cuda = lambda module, device=None: module
torch.cuda.current_device = lambda: 0  # used in mmcv's and mmgen's resume, without a GPU here
torch.UntypedStorage.cuda = torch.TypedStorage.cuda = lambda storage, device: storage
LACKING = "mmgen.models.architectures.stylegan.ada"
for name in ("", ".augment", ".misc"):
    sys.modules[LACKING + name] = module = types.ModuleType(LACKING + name)
    module.AugmentPipe = module.constant = None
unordered = glob.glob
glob.glob = lambda *args, **keywords: sorted(unordered(*args, **keywords))


def old_habits():
    """Restore the names of numpy, collections, torch and pkg_resources used by old packages."""
    for name, kind in (("int", int), ("float", float), ("object", object)):
        setattr(np, name, kind)
    np.bool8, np.cumproduct = np.bool_, np.cumprod
    np.sctypes = {"float": [np.float16, np.float32, np.float64], "others": [bool, object, bytes]}
    np.sctypes["int"] = [np.int8, np.int16, np.int32, np.int64]
    np.sctypes["uint"] = [np.uint8, np.uint16, np.uint32, np.uint64]
    for name in ("Mapping", "Sequence", "Iterable", "Callable"):
        setattr(collections, name, getattr(collections.abc, name))
    load = torch.load
    torch.load = lambda *args, **keywords: load(*args, **{"weights_only": False, **keywords})
    resources = types.ModuleType("pkg_resources")
    resources.parse_version = packaging.version.parse
    resources.DistributionNotFound = ImportError
    resources.get_distribution = lambda name: types.SimpleNamespace(version="0")
    sys.modules["pkg_resources"] = resources


class _Version(importlib.abc.MetaPathFinder):
    """Sets mmcv's version for a package and adds operators when mmcv is imported."""

    def find_spec(self, name, path=None, target=None):
        if name == "mmcv":
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                module.__version__ = os.environ["OLD_MMCV"]
                from lightning_hooks.standin.ops.extension import OFFERED

                sys.modules["mmcv._ext"] = extension = _Operators("mmcv._ext")
                extension.offered = OFFERED
                extension.__spec__ = importlib.machinery.ModuleSpec("mmcv._ext", spec.loader)

            spec.loader.exec_module = exec_module
            return spec
        return None


class _Operators(types.ModuleType):
    """``mmcv._ext`` in plain torch; a missing operator fails when called."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.offered.get(name)


if os.environ["OLD_SIDE"] == "mmcv":
    old_habits()
    sys.meta_path.insert(0, _Version())
