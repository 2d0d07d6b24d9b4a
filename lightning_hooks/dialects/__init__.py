"""Hooks of MMEngine, detectron2, cvpods, Pet and pointrix in a ``HookAdapter``.

``HookAdapter([...], dialect="detectron2")`` hosts hooks of one library; with ``"auto"`` the dialect
of each hook is detected from its base class, else from its points and their arguments. One adapter,
or several adapters of one Trainer, may mix hooks of several dialects. All hooks share one order: by
priority if the dialect has priorities (mmcv, mmengine), else as given.

A :class:`~lightning_hooks.dialects.dialect.Dialect` is data: the points of a library at each point
of mmcv, their arguments, and the class of the object passed to hooks as runner or trainer. If two
points share a row, the first is called on all hooks before the second.

==================  ==================================  ===================  ===================
mmcv's point        mmengine                            detectron2, cvpods,  pointrix
                                                        pet
==================  ==================================  ===================  ===================
before_run          before_run, before_train            before_train         before_run,
                                                                             before_train
before_train_epoch  before_train_epoch
before_train_iter   before_train_iter                   before_step          before_train_iter
after_train_iter    after_train_iter                    after_step           after_train_iter
after_train_epoch   after_train_epoch
before_val_epoch    before_val, before_val_epoch                             before_val
before_val_iter     before_val_iter                                          before_val_iter
after_val_iter      after_val_iter                                           after_val_iter
after_val_epoch     after_val_epoch, after_val                               after_val
after_run           after_train, after_run              after_train          after_train,
                                                                             after_run
in other ways       before_save_checkpoint,             after_backward       exception,
                    after_load_checkpoint               (detectron2)         mmengine's two,
                                                                             any by call_hook
``Trainer.test``    before_test, before_test_epoch,     Pet's TestHook
                    before_test_iter,
                    after_test_iter,
                    after_test_epoch, after_test
==================  ==================================  ===================  ===================

``after_train`` of detectron2, cvpods and Pet, and ``exception`` of pointrix, are also called when
training raises. mmengine's ``before_run`` and ``after_run`` also enclose a test, and a validation
outside of a fit. In a run counted in iterations, mmengine's epoch points are called once, around
the whole run; the points of validation are as above.

``cvpods_master`` is the main branch of cvpods: see ``lightning_hooks.dialects.cvpods``.

A hook's ``state_dict()`` is saved in every Lightning checkpoint. A resumed run passes the state to
``load_state_dict()`` of the hook with the same class and position.
"""

from lightning_hooks.dialects import cvpods, detectron2, mmengine, pet, pointrix
from lightning_hooks.dialects.dialect import DIALECTS, PACKAGES, Dialect, detect
from lightning_hooks.dialects.hosting import Hosted, foreign, host_as

_ALL = (
    *(mmengine.DIALECT, detectron2.DIALECT, cvpods.DIALECT, cvpods.MASTER),
    *(pet.DIALECT, pointrix.DIALECT),
)
for _each in _ALL:
    DIALECTS[_each.name] = _each
    for _package in _each.packages:
        PACKAGES.setdefault(_package, _each.name)

__all__ = [
    "DIALECTS",
    "Dialect",
    "Hosted",
    "cvpods",
    "detect",
    "detectron2",
    "foreign",
    "host_as",
    "mmengine",
    "pet",
    "pointrix",
]
