"""Printed, sent and stored texts contain no passwords and keys."""

from __future__ import annotations

import json
import logging
import traceback
from argparse import Namespace
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from lightning_hooks import (
    HOOKS,
    BestCheckpointHook,
    CheckpointHook,
    Hook,
    HookAdapter,
    TextLoggerHook,
    hooks_from_config,
    register_training_hooks,
    standin,
)
from lightning_hooks.cli.app import run
from lightning_hooks.dialects import detect, pointrix
from lightning_hooks.storage.verification import load
from lightning_hooks.utils.secrets import describe, masked, without_secrets
from support import training
from support.standin import needs_lite
from support.training import NoValidation, make_loader, make_trainer

SECRETS = {
    **dict.fromkeys(
        ["api_key", "apiKey", "API-TOKEN", "hf_token", "auth", "Authorization", "api_keys"], "1234"
    ),
    **dict.fromkeys(["dbPassword", "clientSecret", "TRACKING_TOKEN"], "1234"),
    **dict.fromkeys(["password", "db_password", "PWD", "client_secret", "cookie", "token"], "1234"),
    "headers": [{"credentials": ("me", "1234")}],
    "uri": "http://me:1234@host/x",
    "note": "Bearer 1234",
    "store": "postgresql:///db?user=me&password=1234",
    "login": {"password": 1234},
    "of_service": ["hf_1234567890", "sk-" + "1234" * 6, "AKIA" + "1234" * 4],
}
SHOWN = {"pad_token": "<pad>", "key_indicator": "acc", "tokens": 1234, "monkey": "1234"}
SHOWN |= {"num_session_keys": 7, "maxAccessTokens": 9, "keypoint_auth": 0.5}


def test_secrets_are_masked_by_name_and_by_form() -> None:
    found = masked({**SECRETS, **SHOWN})
    assert {key: found.pop(key) for key in SHOWN} == SHOWN
    assert "1234" not in json.dumps(found)
    assert "1234" not in json.dumps(masked({"api_key": {"prod": "1234"}, "auth/user": "1234"}))
    for shape in (
        repr(SECRETS),
        json.dumps(SECRETS),
        "&".join(f"{k}={v}" for k, v in SECRETS.items()),
    ):
        assert "1234" not in masked(shape)
    assert "1234" not in describe(OSError(f"refused: {SECRETS}"))
    assert "1234" not in repr(without_secrets(SECRETS))


Login = namedtuple("Login", ["password"])


@pytest.mark.parametrize(
    "value",
    [
        Namespace(password="1234"),
        Login("1234"),
        {"http://me:1234@host"},
        b"http://me:1234@host",
        Path("file?password=1234"),
        {"http://me:1234@host": 1},
    ],
    ids=repr,
)
def test_secrets_are_masked_in_objects_of_any_type(value: Any) -> None:
    assert "1234" not in repr(masked({"at": [value]}))


def test_an_object_without_a_repr_is_returned() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    odd = Odd()
    assert masked({"odd": odd}) == {"odd": odd}


class Sends(Hook):
    def __init__(self, api_token: str, headers: Any = None) -> None:
        if api_token == "bad 1234":
            raise ValueError("a bad token")


@pytest.fixture(autouse=True)
def registered() -> Any:
    HOOKS.register_module(module=Sends, force=True)
    yield
    del HOOKS._module_dict["Sends"]


CONFIG: dict[str, Any] = {"type": "Sends", "api_token": "bad 1234"}


@pytest.mark.parametrize(
    "build",
    [
        lambda: HOOKS.build(CONFIG),
        lambda: HOOKS.build({"api_token": "1234"}),
        lambda: HookAdapter([CONFIG]),
        lambda: HookAdapter([(CONFIG, 1, 2)]),
        lambda: register_training_hooks(custom_hooks_config=[CONFIG]),
        lambda: register_training_hooks(custom_hooks_config=[[CONFIG]]),
        lambda: register_training_hooks(log_config={"hooks": [CONFIG]}),
        lambda: register_training_hooks(lr_config={"api_token": "1234"}),
        lambda: register_training_hooks(log_config=[CONFIG]),
        lambda: hooks_from_config([CONFIG]),
        lambda: detect(CONFIG),
        lambda: pointrix.parse_hooks({"sends": CONFIG}),
        lambda: pointrix.parse_hooks({"sends": {"name": "LogHook", "api_token": "1234"}}),
        lambda: pointrix.parse_hooks([CONFIG]),  # type: ignore[arg-type]
    ],
)
def test_no_error_on_a_config_shows_a_secret(build: Any) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)) as error:
        build()
    text = "".join(traceback.format_exception_only(error.type, error.value))
    assert "***" in text
    assert "1234" not in text


def test_the_command_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    monkeypatch.chdir(tmp_path)
    hook = {"type": "Sends", "api_token": "1234", "headers": {"Authorization": "1234"}}
    Path("good.json").write_text(json.dumps({"custom_hooks": [hook]}))
    Path("bad.json").write_text(json.dumps({"custom_hooks": [CONFIG]}))
    assert run(["convert", "good.json"]) == 0
    assert run(["convert", "bad.json"]) == 2
    shown = capsys.readouterr()
    assert 'Sends(api_token="***", headers={"Authorization": "***"})' in shown.out
    assert "'api_token': '***'" in shown.err
    assert "1234" not in shown.out + shown.err


@needs_lite
def test_a_printed_config_of_the_stand_in_shows_no_secret() -> None:
    with standin.installed():
        from mmcv import Config

    config = Config({"custom_hooks": [CONFIG], "uri": "http://me:1234@host/x"})
    shown = "{'custom_hooks': [{'type': 'Sends', 'api_token': '***'}], 'uri': 'http://***@host/x'}"
    assert repr(config) == str(config) == f"Config (path: None): {shown}"
    assert "1234" in config.pretty_text  # the user owns the file of the config


@pytest.mark.usefixtures("forked_checks")
@pytest.mark.parametrize("error", ["ValueError", "SystemExit", "ImportError"])
def test_the_check_of_a_project_shows_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: str
) -> None:
    pytest.importorskip("shtab")
    project = tmp_path / "project.py"
    text = "server = connect(api_key='1234', uri='http://me:1234@host/x')"
    project.write_text(f"class A:\n    raise {error}({text!r})\n")
    for options in ([], ["--json"]):
        run(["check", str(project), *options])
        shown = capsys.readouterr()
        assert "connect(api_key='***'" in shown.out
        assert "1234" not in shown.out + shown.err


def test_a_checkpoint_has_no_secret_of_a_hooks_arguments(tmp_path: Path) -> None:
    class Stateful(Sends):
        def state_dict(self) -> dict[str, int]:
            return {"n": 1}

    hooks = Stateful("s3cret-1234"), CheckpointHook(interval=1)
    make_trainer(tmp_path, *hooks, enable_checkpointing=True).fit(NoValidation(), make_loader())
    saved = torch.load(tmp_path / "epoch_1.pth", weights_only=True)
    assert "Stateful" in repr([saved["callbacks"], saved["lightning_hooks"]["hooks"]])
    assert "s3cret" not in repr([saved["callbacks"], saved["lightning_hooks"]])


def test_hyper_parameters_in_a_checkpoint_are_the_modules_own(tmp_path: Path) -> None:
    class Tuned(NoValidation):
        def __init__(self, api_key: str) -> None:
            super().__init__()
            self.save_hyperparameters()

    trainer = make_trainer(tmp_path, CheckpointHook(interval=1), enable_checkpointing=True)
    trainer.fit(Tuned("1234"), make_loader())
    path = tmp_path / "epoch_1.pth"
    assert Tuned.load_from_checkpoint(path).hparams["api_key"] == "1234"


@pytest.fixture
def with_login() -> Iterator[str]:
    """The URL of an empty storage that requires a user and a password."""

    class Login(MemoryFileSystem):
        protocol = "login"
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            inner = path.split("://", 1)[-1].rpartition("@")[2]
            return str(MemoryFileSystem._strip_protocol(f"memory://{inner}"))

    fsspec.register_implementation("login", Login, clobber=True)
    yield "login://me:hunter2@host"
    Login.clear_instance_cache()


def test_no_user_of_a_url_is_logged_or_stored(tmp_path: Path, with_login: str, caplog: Any) -> None:
    caplog.set_level(logging.INFO)

    def fit(epochs: int, **options: Any) -> BestCheckpointHook:
        best = BestCheckpointHook("val_loss", out_dir=f"{with_login}/out")
        last = CheckpointHook(interval=1, out_dir=f"{with_login}/out")
        training.fit(tmp_path, last, best, TextLoggerHook(), val=1, max_epochs=epochs, **options)
        return best

    fit(1)
    best = fit(2, ckpt_path="last")
    assert best.best_model_path.startswith(f"{with_login}/out/{tmp_path.name}/best_val_loss")
    assert best.best_model_path.endswith("epoch_1.pth")
    own = [line for line in caplog.records if line.name.startswith("lightning_hooks")]
    assert any("checkpoints in login://host/out" in line.getMessage() for line in own)
    assert not any("hunter2" in line.getMessage() for line in own)
    stored = [*(file.getvalue() for file in fsspec.filesystem("login").store.values())]
    stored += [file.read_bytes() for file in tmp_path.iterdir() if file.is_file()]
    assert len(stored) > 5
    assert not any(b"hunter2" in content for content in stored)
    with pytest.raises(FileNotFoundError) as caught:
        load(f"{with_login}/out/none.pth")
    assert "hunter2" not in str(caught.value)
