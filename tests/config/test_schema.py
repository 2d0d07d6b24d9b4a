"""The JSON schema of configs: an editor finds in a file what ``hooks_from_config`` refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_hooks import HOOKS, hooks_from_config
from lightning_hooks.cli import main
from lightning_hooks.config.schema import json_schema
from support.contract import CASES
from support.paths import ROOT

jsonschema = pytest.importorskip("jsonschema")

PAGE = (ROOT / "docs" / "hooks_in_yaml.md").read_text(encoding="utf-8")
LOGS = {"interval": 10, "hooks": [{"type": "TextLoggerHook"}]}

RIGHT: list[dict[str, Any]] = [
    {},
    {"model": {"type": "ResNet"}, "data": {"samples_per_gpu": 2}},
    {"lr_config": {"policy": "step", "step": [8, 11], "warmup": "linear", "warmup_iters": 500}},
    {"lr_config": {"policy": "CosineAnnealing", "min_lr": 0}, "momentum_config": None},
    {"lr_config": {"type": "StepLrUpdaterHook", "step": 3}},
    {"optimizer_config": {"grad_clip": {"max_norm": 35, "norm_type": 2}}},
    {"optimizer_config": {"type": "GradientCumulativeOptimizerHook", "cumulative_iters": 4}},
    {"optimizer_config": {}, "checkpoint_config": {"interval": 1}, "log_config": LOGS},
    {"custom_hooks": {"type": "EMAHook", "priority": "very_low"}},
    {"custom_hooks": [{"type": "EMAHook", "priority": 49, "run_after": "CheckpointHook"}]},
    {"evaluation": {"interval": 2, "save_best": "auto"}, "timer_config": None},
    {"runner": {"type": "IterBasedRunner", "max_iters": 9}, "work_dir": "runs/a"},
    {"workflow": [["train", 2], ["val", 1]], "total_epochs": 12},
]

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"lr_config": {"policy": "stp"}}, "lr_config/policy", "'stp'"),
    ({"lr_config": {"step": 3}}, "lr_config", "'policy'"),
    ({"lr_config": {"policy": "step"}}, "lr_config", "'step'"),
    ({"lr_config": {"policy": "step", "step": 3, "gama": 0.1}}, "lr_config", "'gama'"),
    ({"lr_config": {"policy": "Exp", "gamma": "0.1"}}, "lr_config/gamma", "'0.1'"),
    ({"lr_config": "step"}, "lr_config", "'step'"),
    ({"optimizer_config": {"grad_clip": 35}}, "optimizer_config/grad_clip", "35"),
    ({"optimizer_config": {"clip": 35}}, "optimizer_config", "'clip'"),
    ({"checkpoint_config": {"interval": "1"}}, "checkpoint_config/interval", "'1'"),
    ({"custom_hooks": [{"type": "EMAHok"}]}, "custom_hooks/0/type", "'EMAHok'"),
    ({"custom_hooks": [{"momentum": 0.1}]}, "custom_hooks/0", "'type'"),
    ({"custom_hooks": [{"type": "EMAHook", "momentm": 1}]}, "custom_hooks/0", "'momentm'"),
    (
        {"custom_hooks": [{"type": "EMAHook", "priority": "LOWER"}]},
        "custom_hooks/0/priority",
        "'LOWER'",
    ),
    ({"log_config": {"interval": 10}}, "log_config", "'hooks'"),
    (
        {"log_config": {**LOGS, "hooks": [{"type": "TextLogger"}]}},
        "log_config/hooks/0/type",
        "'TextLogger'",
    ),
    ({"evaluation": {"interval": "2"}}, "evaluation/interval", "'2'"),
    ({"timer_config": {}}, "timer_config", "'type'"),
    ({"runner": {"type": "EpochRunner"}}, "runner/type", "'EpochRunner'"),
    ({"workflow": [["trian", 1]]}, "workflow/0/0", "'trian'"),
]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found = json_schema()
    jsonschema.Draft7Validator.check_schema(found)
    return found


def mistakes(schema: dict[str, Any], config: Any) -> list[tuple[str, str]]:
    """Return the place of each mistake in a config, and its description, as an editor does."""
    found = jsonschema.Draft7Validator(schema).iter_errors(json.loads(json.dumps(config)))
    return [("/".join(map(str, one.absolute_path)), one.message) for one in found]


@pytest.mark.parametrize("config", RIGHT)
def test_a_right_config_has_no_mistakes(schema: dict[str, Any], config: dict[str, Any]) -> None:
    assert mistakes(schema, config) == []
    assert hooks_from_config(config)


@pytest.mark.parametrize(("config", "place", "message"), WRONG)
def test_a_wrong_config_is_marked_where_it_is_wrong(
    schema: dict[str, Any], config: dict[str, Any], place: str, message: str
) -> None:
    assert [(at, message in text) for at, text in mistakes(schema, config)] == [(place, True)]
    with pytest.raises((TypeError, ValueError, KeyError)):  # which reads it in the same way
        hooks_from_config(config)


def test_every_hooks_arguments_are_in_it(schema: dict[str, Any]) -> None:
    assert {*HOOKS.module_dict} <= {*schema["definitions"]}
    for name, (arguments, _) in CASES.items():
        if name != "ClosureHook":  # whose argument is a function
            custom = {"custom_hooks": [{"type": name, **arguments}]}
            cli = {"class_path": f"lightning_hooks.{name}", "init_args": arguments}
            assert mistakes(schema, custom) == [], name
            assert mistakes(schema, {"trainer": {"callbacks": [cli]}}) == [], name
    for name, one in schema["definitions"].items():
        for argument, of_argument in one["properties"].items():
            assert "description" in of_argument or argument == "type", (name, argument)
    momentum = schema["definitions"]["EMAHook"]["properties"]["momentum"]
    assert momentum == {
        "type": "number",
        "default": 0.0002,
        "description": "The weight of the model in the average per step, in (0, 1).",
    }


def test_the_callbacks_of_a_lightning_cli(schema: dict[str, Any]) -> None:
    callback: dict[str, Any] = {"class_path": "EMAHook", "init_args": {"momentm": 0.1}}
    found = mistakes(schema, {"trainer": {"max_epochs": 3, "callbacks": [callback]}})
    assert [(place, "'momentm'" in text) for place, text in found] == [
        ("trainer/callbacks/0/init_args", True)
    ]
    other = {"class_path": "lightning.pytorch.callbacks.Timer", "init_args": {"duration": 3}}
    assert mistakes(schema, {"trainer": {"callbacks": [other]}}) == []
    assert mistakes(schema, {"trainer": {"callbacks": None}}) == []


def test_a_file_may_leave_out_what_it_inherits(schema: dict[str, Any]) -> None:
    child: dict[str, Any] = {"_base_": "base.yaml", "lr_config": {"step": [16, 22]}}
    assert mistakes(schema, child) == []
    child |= {"optimizer_config": {"cumulative_iters": 4}, "log_config": {"interval": 5}}
    assert mistakes(schema, child) == []
    child["lr_config"] = {"_delete_": True, "policy": "step", "step": "16"}
    assert [place for place, _ in mistakes(schema, child)] == ["lr_config/step"]
    child["lr_config"] = {"policy": "step", "stp": 16}
    assert [place for place, _ in mistakes(schema, child)] == ["lr_config"]


def test_the_example_of_the_page_is_right(schema: dict[str, Any]) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        assert mistakes(schema, yaml.safe_load(example)) == []


def test_the_command_prints_it_with_the_hooks_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("rich", "shtab"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    Path("hooks_of_a_project.py").write_text(
        "from mmcv.runner import HOOKS, Hook\n\n\n"
        "@HOOKS.register_module()\nclass WarmRestartHook(Hook):\n"
        '    """Begins the warm-up anew."""\n\n'
        "    def __init__(self, at, factor: float = 2.0):\n        self.at = at\n"
    )
    try:
        with pytest.raises(SystemExit) as stopped:
            main(["schema", "hooks_of_a_project"])
    finally:
        HOOKS.module_dict.pop("WarmRestartHook", None)
    assert stopped.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    right = {"type": "WarmRestartHook", "at": 3}
    assert mistakes(printed, {"custom_hooks": [right]}) == []
    wrong = mistakes(printed, {"custom_hooks": [{"type": "WarmRestartHook", "factor": "2"}]})
    assert sorted(place for place, _ in wrong) == ["custom_hooks/0", "custom_hooks/0/factor"]
