"""``HubCheckpointHook`` with a local Hub server: the uploaded files, and an unreachable server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    HubCheckpointHook,
)
from lightning_hooks.utils.secrets import describe
from support import training
from support.hub_server import Hub, hub_server
from support.probes import equal
from support.training import TinyModule, make_loader, make_trainer

client = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")

TOKEN = "hf_abcdefghijklmnop"
REPO = "me/digits"
# a warning of the client's own reader
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
each = pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])


class Secretive(TinyModule):
    """A module with hyperparameters, one of them secret, and a better score in each epoch."""

    def __init__(self, width: int = 3, api_key: str = "12345678") -> None:
        super().__init__()
        self.save_hyperparameters()

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("accuracy", float(self.trainer.current_epoch + 1) / 8)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hub_server() as found:
        use_server(found.url, monkeypatch)
        yield found


def use_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the client to a server, as HF_ENDPOINT does at import."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


def fit(tmp_path: Path, *hooks: Any, host: bool = False, epochs: int = 3, **more: Any) -> L.Trainer:
    options = {"max_epochs": epochs, "val": 1, "host": host, **more}
    return training.fit(tmp_path, *hooks, module=Secretive, **options)


def lines(caplog: pytest.LogCaptureFixture, level: str = "WARNING") -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelname == level and "HubCheckpointHook" in record.getMessage()
    ]


@each
def test_the_best_is_pushed_with_a_card_of_the_run(
    host: bool,
    hub: Hub,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("INFO", "lightning_hooks")
    best = BestCheckpointHook("accuracy")
    fit(tmp_path, best, HubCheckpointHook(REPO), host=host)
    files = hub.repos[REPO]
    assert files["best.pth"] == (tmp_path / "best_accuracy_epoch_3.pth").read_bytes()
    assert hub.private[REPO]
    assert hub.commits[-1] == "best checkpoint (accuracy 0.375), after epoch 3 and iteration 12"
    card = files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: lightning\n")
    for part in ("| `accuracy` | 0.375 |", "Secretive.load_from_check"):
        assert part in card
    config = json.loads(re.findall(r"```json\n(.*?)```", card, re.DOTALL)[0])
    assert config["hyper_parameters"] == {"width": 3, "api_key": "***"}
    assert config["trainer"]["max_epochs"] == 3
    assert {"type": "BestCheckpointHook", "save_best": "accuracy"} in config["hooks"]
    said = [line for line in lines(caplog, "INFO") if "is pushed to" in line]
    assert said[-1].endswith(f"{hub.url}/{REPO}")
    assert "%|" not in "".join(capfd.readouterr())  # the client's progress bars
    assert lines(caplog) == []
    assert {key for _, path, key in hub.requests if "/commit/" in path} == {f"Bearer {TOKEN}"}
    loaded = tmp_path / "loaded.pth"
    loaded.write_bytes(files["best.pth"])
    assert Secretive.load_from_checkpoint(loaded).hparams.width == 3


def test_the_caption_names_the_score_that_was_found(hub: Hub, tmp_path: Path) -> None:
    fit(tmp_path, BestCheckpointHook(rule="greater"), HubCheckpointHook(REPO), epochs=1)
    assert hub.commits[-1] == "best checkpoint (accuracy 0.125), after epoch 1 and iteration 4"


def test_the_last_is_pushed_also_by_iteration(hub: Hub, tmp_path: Path) -> None:
    files = CheckpointHook(interval=3, by_epoch=False, max_keep_ckpts=1, save_last=False)
    fit(tmp_path, files, HubCheckpointHook(REPO, "last", private=False, card=False), host=True)
    assert {*hub.repos[REPO]} == {"last.pth"}
    assert hub.repos[REPO]["last.pth"] == (tmp_path / "iter_12.pth").read_bytes()
    assert not hub.private[REPO]
    assert hub.commits[-1] == "last checkpoint, after epoch 3 and iteration 12"


def test_the_weights_are_pushed_as_safetensors(hub: Hub, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    best = BestCheckpointHook("accuracy")
    fit(tmp_path, best, HubCheckpointHook(REPO, format="safetensors"))
    files = hub.repos[REPO]
    assert {*files} == {"best.safetensors", "README.md"}
    (tmp_path / "pushed.safetensors").write_bytes(files["best.safetensors"])
    with safetensors.safe_open(tmp_path / "pushed.safetensors", "pt") as pushed:
        state = {key: pushed.get_tensor(key) for key in pushed.keys()}  # noqa: SIM118
        assert pushed.metadata()["score"] == "0.375"
    saved = torch.load(best.best_model_path, weights_only=True)["state_dict"]
    assert equal(state, saved)
    card = files["README.md"].decode()
    assert "model = Secretive(...)\nload_model(model, path)\n```" in card
    assert "load_from_checkpoint" not in card


@pytest.mark.slow
def test_best_of_a_checkpoint_hook_that_writes_in_the_background(hub: Hub, tmp_path: Path) -> None:
    hook = CheckpointHook(interval=1, max_keep_ckpts=1, save_best="accuracy", background=True)
    fit(tmp_path, hook, HubCheckpointHook(REPO))
    assert hub.repos[REPO]["best.pth"] == (tmp_path / "best_accuracy_epoch_3.pth").read_bytes()
    assert "| `accuracy` | 0.375 |" in hub.repos[REPO]["README.md"].decode()


def test_a_card_that_somebody_has_written_stays(hub: Hub, tmp_path: Path) -> None:
    hub.repos[REPO] = {"README.md": b"# My model", "other.txt": b"mine"}
    fit(tmp_path, BestCheckpointHook("accuracy"), HubCheckpointHook(REPO))
    assert hub.repos[REPO]["README.md"] == b"# My model"
    assert {*hub.repos[REPO]} == {"README.md", "other.txt", "best.pth"}


@pytest.mark.slow
def test_a_card_of_an_earlier_run_is_replaced(hub: Hub, tmp_path: Path) -> None:
    for epochs in (1, 2):
        fit(tmp_path, BestCheckpointHook("accuracy"), HubCheckpointHook(REPO), epochs=epochs)
        assert f"| `accuracy` | {epochs / 8:g} |" in hub.repos[REPO]["README.md"].decode()


def test_a_card_that_cannot_be_made_does_not_keep_the_file_back(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = CheckpointHook(), HubCheckpointHook(REPO, upload="last")
    trainer = make_trainer(tmp_path, *hooks, enable_checkpointing=True)
    module = Secretive()
    module.save_hyperparameters({"grid": {(1, 2): 3}})
    trainer.fit(module, make_loader(1), make_loader(1))
    assert [*hub.repos[REPO]] == ["last.pth"]
    assert [line.partition(" (")[0] for line in lines(caplog)] == [
        "HubCheckpointHook: last.pth is pushed without a card"
    ]


def test_a_slow_hub_gets_the_first_and_the_newest(hub: Hub, tmp_path: Path) -> None:
    class Wait(L.Callback):
        def on_train_end(self, *args: Any) -> None:
            time.sleep(0.1)
            hub.gate.set()

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            end = time.monotonic() + 5  # until the first upload starts
            while trainer.current_epoch and not any("/large/" in one[1] for one in hub.requests):
                assert time.monotonic() < end
                time.sleep(0.01)

    hub.gate.clear()
    fit(
        tmp_path,
        BestCheckpointHook("accuracy"),
        HubCheckpointHook(REPO, card=False),
        Wait(),
        epochs=4,
    )
    assert [re.findall(r"epoch (\d)", one)[0] for one in hub.commits] == ["1", "4"]


def test_a_hub_that_comes_back_gets_what_it_has_missed(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Back(L.Callback):
        def on_train_end(self, *args: Any) -> None:
            assert lines(caplog)
            hub.answer = None

    hub.answer = 500
    fit(tmp_path, BestCheckpointHook("accuracy"), HubCheckpointHook(REPO, card=False), Back())
    assert hub.repos[REPO]["best.pth"] == (tmp_path / "best_accuracy_epoch_3.pth").read_bytes()
    assert len(lines(caplog)) == 1
    assert lines(caplog)[0].endswith("; training goes on")


@each
def test_a_dead_hub_costs_two_lines(
    host: bool,
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tmp_path = tmp_path / "my runs"
    use_server("http://me:secret@127.0.0.1:9", monkeypatch)
    begin = time.monotonic()
    hook = HubCheckpointHook(REPO, card=False, timeout=0.1)
    trainer = fit(tmp_path, BestCheckpointHook("accuracy"), hook, host=host)
    assert trainer.state.finished
    assert time.monotonic() - begin < 5
    best = tmp_path / "best_accuracy_epoch_3.pth"
    said = lines(caplog)
    assert len(said) == 2
    assert said[0].endswith("; training goes on")
    command = f"hf upload {REPO} '{best}' best.pth"
    assert said[1].endswith(f"best.pth is not pushed; to push it: {command}")
    assert "secret" not in caplog.text


def test_a_hub_that_hangs_is_left_behind(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub.gate.clear()
    begin = time.monotonic()
    fit(tmp_path, BestCheckpointHook("accuracy"), HubCheckpointHook(REPO, card=False, timeout=0.2))
    assert time.monotonic() - begin < 5
    assert len(lines(caplog)) == 1
    assert "hf upload" in lines(caplog)[0]


def test_a_wrong_token_is_two_lines_and_is_not_shown(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub.answer = 401
    fit(tmp_path, BestCheckpointHook("accuracy"), HubCheckpointHook(REPO, card=False))
    said = lines(caplog)
    assert len(said) == 2
    assert "401" in said[0]
    attempts = [path for _, path, _ in hub.requests if path == "/api/repos/create"]
    assert len(attempts) <= 4  # one per file, and one at the end
    assert TOKEN not in caplog.text


@pytest.mark.slow
def test_an_error_of_the_training_pushes_what_there_is(hub: Hub, tmp_path: Path) -> None:
    class Fail(L.Callback):
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            if trainer.current_epoch == 2:
                raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fit(tmp_path, BestCheckpointHook("accuracy"), HubCheckpointHook(REPO, card=False), Fail())
    assert "after epoch 2" in hub.commits[-1]


def test_fast_dev_run_pushes_nothing(hub: Hub, tmp_path: Path) -> None:
    fit(tmp_path, BestCheckpointHook("accuracy"), HubCheckpointHook(REPO), fast_dev_run=True)
    assert hub.requests == []


@pytest.mark.parametrize("upload", ["best", "last"])
def test_without_such_a_file_a_line_names_the_hook_that_writes_it(
    upload: str, hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit(tmp_path, HubCheckpointHook(REPO, upload), enable_checkpointing=False, epochs=1)
    name = {"best": "BestCheckpointHook", "last": "CheckpointHook"}[upload]
    assert [f"add {name}(" in line for line in lines(caplog)] == [True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repo_id": "digits"}, 'repo_id must be "user/name", got'),
        ({"repo_id": "me/../digits"}, 'repo_id must be "user/name", got'),
        ({"repo_id": None}, "repo_id must be a str"),
        ({"repo_id": REPO, "upload": "bst"}, "did you mean 'best'"),
        ({"repo_id": REPO, "private": 1}, "private must be a bool"),
        ({"repo_id": REPO, "timeout": -1}, "timeout must be at least 0"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        HubCheckpointHook(**arguments)


def test_remote_checkpoints_are_refused_before_the_first_step(hub: Hub, tmp_path: Path) -> None:
    hooks = [CheckpointHook(interval=1, out_dir="memory://there"), HubCheckpointHook(REPO, "last")]
    with pytest.raises(ValueError, match="pushes local files, and the checkpoints are memory:"):
        fit(tmp_path, *hooks)


def test_errors_of_the_client_are_shown_without_secrets() -> None:
    shown = describe(OSError(f"https://me:1234@host/x refused Bearer {TOKEN}\nRequest ID: 3"))
    assert shown == "OSError: https://host/x refused Bearer *** Request ID: 3"


@pytest.mark.slow
def test_the_uploaded_file_is_a_checkpoint(hub: Hub, tmp_path: Path) -> None:
    fit(tmp_path, BestCheckpointHook("accuracy"), HubCheckpointHook(REPO, card=False), epochs=1)
    path = client.hf_hub_download(REPO, "best.pth", local_dir=tmp_path / "download")
    assert "state_dict" in torch.load(path, weights_only=True)
