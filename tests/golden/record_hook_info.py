"""Record mmcv's table of hooks by stage, with priorities and spaces."""

from typing import Any

from oracle import HOOKS, Hook, make_hook, make_runner

STEP, OPTIMIZER = {"type": "StepLrUpdaterHook", "step": [1]}, {"type": "OptimizerHook"}
CHECKPOINT, TIMER = {"type": "CheckpointHook", "interval": 1}, {"type": "IterTimerHook"}
TEXT, EMA = {"type": "TextLoggerHook"}, {"type": "EMAHook"}


def own(name: str, *overrides: str) -> dict[str, Any]:
    """Describe a hook class that overrides exactly the given methods."""
    return {"own": name, "overrides": overrides}


# case: hooks in the order of registration, with priorities
CASES = {
    "none": [],
    "defaults": [
        (STEP, "VERY_HIGH"),
        (OPTIMIZER, "ABOVE_NORMAL"),
        (CHECKPOINT, "NORMAL"),
        (TIMER, "LOW"),
        (TEXT, "VERY_LOW"),
    ],
    "registered_backwards": [
        (TEXT, "VERY_LOW"),
        (TIMER, "LOW"),
        (EMA, 49),
        (CHECKPOINT, "NORMAL"),
        (OPTIMIZER, "ABOVE_NORMAL"),
        (STEP, "VERY_HIGH"),
    ],
    "integers": [(EMA, 49), (CHECKPOINT, 50), (TIMER, 0), (TEXT, 100), (OPTIMIZER, 7)],
    "ties_as_registered": [
        (own("First", "before_run"), "NORMAL"),
        (own("Second", "before_run"), 50),
        (own("Third", "before_run"), "normal"),
        (own("Earlier", "before_run"), "HIGHEST"),
    ],
    "generic_points": [
        (own("BeforeEpoch", "before_epoch"), "HIGH"),
        (own("AfterEpoch", "after_epoch"), "BELOW_NORMAL"),
        (own("BeforeIter", "before_iter"), 33),
        (own("AfterIter", "after_iter"), "LOWEST"),
        (own("Nothing"), "NORMAL"),
        (own("Mixed", "before_epoch", "before_train_epoch", "after_val_iter"), 66),
    ],
    "long_name": [(own("AHookWhoseNameIsLongerThanThirtyFiveCharacters", "after_run"), 12)],
}


def make(spec: dict[str, Any]) -> Any:
    """Create a registered hook or a described hook."""
    if "own" not in spec:
        return make_hook(spec)
    methods = {point: lambda self, runner: None for point in spec["overrides"]}
    return type(spec["own"], (Hook,), methods)()


def info(hooks: list[tuple[dict[str, Any], Any]]) -> str:
    """Register the hooks; return the hook info."""
    runner = make_runner("EpochBasedRunner", 1)
    for spec, priority in hooks:
        runner.register_hook(make(spec), priority)
    return runner.get_hook_info()


def record() -> dict[str, Any]:
    """Record every case, with the text as a list of lines, and the names registered by mmcv."""
    cases = {
        name: {"hooks": hooks, "info": info(hooks).split("\n")} for name, hooks in CASES.items()
    }
    return {"registered": sorted(HOOKS.module_dict), "stages": Hook.stages, "cases": cases}
