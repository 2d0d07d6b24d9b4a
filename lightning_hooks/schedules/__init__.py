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

from lightning_hooks.schedules.anneal import annealing_cos as annealing_cos
from lightning_hooks.schedules.anneal import annealing_linear as annealing_linear
from lightning_hooks.schedules.anneal import cosine as cosine
from lightning_hooks.schedules.anneal import cosine_cooldown as cosine_cooldown
from lightning_hooks.schedules.anneal import cosine_restart as cosine_restart
from lightning_hooks.schedules.anneal import flat_cosine as flat_cosine
from lightning_hooks.schedules.anneal import linear as linear
from lightning_hooks.schedules.anneal import yolox as yolox
from lightning_hooks.schedules.anneal import yolox_warm_up as yolox_warm_up
from lightning_hooks.schedules.cyclic import cyclic as cyclic
from lightning_hooks.schedules.cyclic import one_cycle as one_cycle
from lightning_hooks.schedules.cyclic import one_cycle_momentum as one_cycle_momentum
from lightning_hooks.schedules.decay import exp as exp
from lightning_hooks.schedules.decay import fixed as fixed
from lightning_hooks.schedules.decay import inv as inv
from lightning_hooks.schedules.decay import multi_stage as multi_stage
from lightning_hooks.schedules.decay import poly as poly
from lightning_hooks.schedules.decay import step as step
from lightning_hooks.schedules.drawing import plot as plot
from lightning_hooks.schedules.drawing import table as table
from lightning_hooks.schedules.preview import sample as sample
from lightning_hooks.schedules.warm_up import WARM_UPS as WARM_UPS
from lightning_hooks.schedules.warm_up import check_warm_up as check_warm_up
from lightning_hooks.schedules.warm_up import warm_up as warm_up
