"""Schedules as pure functions: ``rate = policy(base, position, total, *, arguments)``.

``position`` counts epochs or iterations from 0; ``total`` is the number of epochs or iterations in
the run, None for a policy that ignores the length. A policy needs no trainer: bind the arguments
with ``functools.partial``, and draw or test the function. :func:`warm_up` is a factor on top of any
policy. Learning rates and momenta share the functions; the numbers equal mmcv's to the last bit.
:func:`sample`, :func:`table` and :func:`plot` show the values set by a hook, without a trainer.

>>> from functools import partial
>>> halving = partial(step, step=2, gamma=0.5)
>>> [halving(1.0, epoch, None) for epoch in range(5)]
[1.0, 1.0, 0.5, 0.5, 0.25]
"""

from lightning_hooks.schedules.anneal import *  # noqa: F403 - all policies in __all__
from lightning_hooks.schedules.cyclic import *  # noqa: F403
from lightning_hooks.schedules.decay import *  # noqa: F403
from lightning_hooks.schedules.drawing import plot as plot
from lightning_hooks.schedules.drawing import table as table
from lightning_hooks.schedules.phases import *  # noqa: F403
from lightning_hooks.schedules.preview import sample as sample
from lightning_hooks.schedules.warm_up import WARM_UPS as WARM_UPS
from lightning_hooks.schedules.warm_up import check_warm_up as check_warm_up
from lightning_hooks.schedules.warm_up import warm_up as warm_up
