"""The hook dialects: hooks of mmcv's sister libraries in the same adapter.

``HookAdapter([...], dialect="detectron2")`` hosts hooks of one dialect; with ``"auto"`` each hook
is told by the package of its base class, else by its points and what they take. Hooks of several
dialects may be in one adapter, or in several adapters of one Trainer: they are called in one order,
by priority where the dialect has one (mmcv, mmengine), else as given.

A dialect is data (:class:`~lightning_hooks.dialects.dialect.Dialect`): which of its points are
called at each of mmcv's, with what arguments, and what its hooks see in place of the runner. Where
there are two names at one place, the first is finished for all hooks before the second.

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
                    after_load_checkpoint               (detectron2)         the two of mmengine,
                                                                             any by call_hook
``Trainer.test``    before_test, before_test_epoch,     Pet's TestHook
                    before_test_iter,
                    after_test_iter,
                    after_test_epoch, after_test
==================  ==================================  ===================  ===================

``after_train`` of detectron2, cvpods and Pet, and ``exception`` of pointrix, are called when
training raises too. Around mmengine's points of testing, and of a validation by itself, come its
``before_run`` and ``after_run``. In a run that is counted in iterations, mmengine's epoch points
are called once around all of it, and the points of validation as here.

A hook's ``state_dict()`` is saved in every checkpoint of Lightning's and given back, by
``load_state_dict()``, to the hook of the same class and place in a run that goes on.
"""

from lightning_hooks.dialects import cvpods, detectron2, mmengine, pet, pointrix
from lightning_hooks.dialects.detect import detect
from lightning_hooks.dialects.dialect import DIALECTS, Dialect
from lightning_hooks.dialects.hosting import Hosted, foreign, host_as

DIALECTS.update({m.DIALECT.name: m.DIALECT for m in (mmengine, detectron2, cvpods, pet, pointrix)})

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
