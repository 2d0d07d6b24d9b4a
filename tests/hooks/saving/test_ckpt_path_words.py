"""ckpt_path="last" and "best" and the paths of an adapter for the files of hosted hooks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_hooks import BestCheckpointHook, CheckpointHook, EMAHook, EvalHook, HookAdapter
from lightning_hooks.storage import checksum, manifest
from support.training import TinyModule, make_loader, make_trainer, started_ranks

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:Lightning's default ModelCheckpoint runs beside"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*is called with Trainer configured with multiple"),
]
both = pytest.mark.parametrize("default", [False, True], ids=["alone", "beside the default"])


class Falls(TinyModule):
    """The score is best in the second of three epochs."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_acc", -abs(self.current_epoch - 1.0))


def hosted() -> HookAdapter:
    return HookAdapter([CheckpointHook(interval=1), BestCheckpointHook("val_acc")])


@both
def test_both_words_after_a_fit(tmp_path: Path, default: bool) -> None:
    options = {"max_epochs": 3, "enable_checkpointing": default, "num_sanity_val_steps": 0}
    trainer = make_trainer(tmp_path, hosted(), **options)
    trainer.fit(Falls(), make_loader(), make_loader(1))
    for word, name in (("last", "epoch_3.pth"), ("best", "best_val_acc_epoch_2.pth")):
        trainer.validate(Falls(), make_loader(1), ckpt_path=word, verbose=False)
        assert trainer.ckpt_path == str(tmp_path / name)


def test_the_adapters_paths_with_new_objects(tmp_path: Path) -> None:
    options = {"max_epochs": 3, "num_sanity_val_steps": 0}
    hooks = HookAdapter(hosted().hooks, work_dir=tmp_path)
    make_trainer(tmp_path, hooks, **options).fit(Falls(), make_loader(), make_loader(1))
    new = HookAdapter(hosted().hooks, work_dir=tmp_path)
    assert new.last_checkpoint == str(tmp_path / "epoch_3.pth")
    assert new.best_checkpoint == str(tmp_path / "best_val_acc_epoch_2.pth")


# -- "last" with a new Trainer -----------------------------------------------------------------

lightning_warns = pytest.mark.filterwarnings("ignore:.*there is no last checkpoint available")


def weights(module: TinyModule) -> dict[str, Any]:
    return {name: value.tolist() for name, value in module.state_dict().items()}


@lightning_warns
@both
@pytest.mark.parametrize("other", [False, True], ids=["one directory", "two"])
def test_last_goes_on_with_a_new_trainer(tmp_path: Path, default: bool, other: bool) -> None:
    def train(folder: str, epochs: int, **words: Any) -> Falls:
        best = BestCheckpointHook("val_acc", out_dir=str(tmp_path / "best") if other else None)
        hooks = HookAdapter([CheckpointHook(interval=1), EMAHook(), best])
        options = {"enable_checkpointing": default, "num_sanity_val_steps": 0}
        module = Falls()
        trainer = make_trainer(tmp_path / folder, hooks, max_epochs=epochs, **options)
        trainer.fit(module, make_loader(), make_loader(1), **words)
        assert trainer.current_epoch == epochs
        return module

    straight = train("straight", 4)
    train("run", 2)
    first = (tmp_path / "run/epoch_2.pth").read_bytes()
    resumed = train("run", 4, ckpt_path="last")
    assert len(resumed.losses) == 8
    assert weights(resumed) == weights(straight)
    assert (tmp_path / "run/epoch_2.pth").read_bytes() == first


@lightning_warns
def test_last_is_validated_with_a_new_trainer(tmp_path: Path) -> None:
    trained = Falls()
    make_trainer(tmp_path, hosted(), max_epochs=2).fit(trained, make_loader(), make_loader(1))
    module = Falls(seed=1)
    make_trainer(tmp_path, hosted()).validate(module, make_loader(1), "last", verbose=False)
    assert weights(module) == weights(trained)


@lightning_warns
@pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
def test_the_newest_of_two_directories_has_the_most_iterations(tmp_path: Path, host: bool) -> None:
    def train(epochs: int, **words: Any) -> TinyModule:
        early = CheckpointHook(5, by_epoch=False, save_last=False, out_dir=str(tmp_path / "early"))
        hooks, module = [early, CheckpointHook(1)], TinyModule()
        if host:
            hooks = [HookAdapter(hooks, work_dir=str(tmp_path / "run"))]
        options = {"max_epochs": epochs, "enable_checkpointing": not host}
        trainer = make_trainer(tmp_path / "run", *hooks, **options)
        trainer.fit(module, make_loader(), **words)
        found = hooks[0].last_checkpoint if host else hooks[1].last_model_path
        assert found == str(tmp_path / f"run/epoch_{epochs}.pth")
        return module

    train(2)
    for path in (tmp_path / "early/run").glob("*.pth"):
        os.utime(path, (2**32, 2**32))  # as if the clock had been set back since
    assert len(train(3, ckpt_path="last").losses) == 4


class Brings(TinyModule):
    """A module whose ``configure_callbacks`` returns a hook, bare or in an adapter."""

    host = False

    def configure_callbacks(self) -> Any:
        hook = CheckpointHook(interval=1)
        return HookAdapter(hook) if self.host else hook


class BringsAdapter(Brings):
    host = True


@lightning_warns
@pytest.mark.parametrize("kind", [Brings, BringsAdapter])
def test_last_goes_on_for_hooks_of_configure_callbacks(tmp_path: Path, kind: Any) -> None:
    make_trainer(tmp_path).fit(kind(), make_loader())
    module = kind()
    make_trainer(tmp_path, max_epochs=2).fit(module, make_loader(), ckpt_path="last")
    assert len(module.losses) == 4


@lightning_warns
@pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
def test_last_goes_on_for_an_eval_hook_alone(tmp_path: Path, host: bool) -> None:
    def train(epochs: int, **words: Any) -> int:
        hook, module = EvalHook(None, save_best="val_acc"), Falls()
        options = {"max_epochs": epochs, "num_sanity_val_steps": 0}
        trainer = make_trainer(tmp_path, HookAdapter(hook) if host else hook, **options)
        trainer.fit(module, make_loader(), make_loader(1), **words)
        return len(module.losses)

    train(3)  # the best is of the second epoch
    assert train(3, ckpt_path="last") == 4


def test_last_goes_on_in_the_processes_of_a_launcher(tmp_path: Path) -> None:
    for epochs, word in ((1, None), (2, "last")):
        hooks = HookAdapter([CheckpointHook(interval=1)])
        options = {"max_epochs": epochs, "strategy": started_ranks(), "devices": 2}
        make_trainer(tmp_path, hooks, **options).fit(TinyModule(), make_loader(), ckpt_path=word)
    assert {entry.name for entry in manifest.read(str(tmp_path))} == {"epoch_1.pth", "epoch_2.pth"}
    assert len({entry.run for entry in manifest.read(str(tmp_path))}) == 1


@lightning_warns
def test_a_word_that_finds_no_intact_file_overwrites_none(tmp_path: Path) -> None:
    make_trainer(tmp_path, HookAdapter(CheckpointHook(1))).fit(TinyModule(), make_loader())
    path = tmp_path / "epoch_1.pth"
    path.write_bytes(damaged := path.read_bytes()[:-100])
    trainer = make_trainer(tmp_path, HookAdapter(CheckpointHook(1)), max_epochs=2)
    with (
        pytest.warns(UserWarning, match="no valid checkpoint is left"),
        pytest.raises(FileExistsError, match='"last" has found no checkpoint to load') as error,
    ):
        trainer.fit(TinyModule(), make_loader(), ckpt_path="last")
    for way in (f'ckpt_path="{path}"', "out_dir=", "work_dir=", "default_root_dir="):
        assert way in str(error.value)
    assert path.read_bytes() == damaged
    assert not (tmp_path / "epoch_2.pth").exists()


def test_a_run_without_the_word_begins_anew_and_says_so(tmp_path: Path, caplog: Any) -> None:
    make_trainer(tmp_path, HookAdapter(CheckpointHook(1)), max_epochs=2).fit(
        TinyModule(), make_loader()
    )
    module = TinyModule()
    make_trainer(tmp_path, HookAdapter(CheckpointHook(1))).fit(module, make_loader())
    assert len(module.losses) == 4
    (message,) = [one for one in caplog.messages if "another run" in one]
    assert (
        f'trainer.fit(..., ckpt_path="last"), or ckpt_path="{tmp_path / "epoch_2.pth"}"' in message
    )


def test_without_a_file_the_run_begins_anew(tmp_path: Path) -> None:
    module = TinyModule()
    trainer = make_trainer(tmp_path, HookAdapter([EMAHook(), CheckpointHook(interval=1)]))
    with pytest.warns(UserWarning, match="there is no last checkpoint available"):
        trainer.fit(module, make_loader(), ckpt_path="last")
    assert len(module.losses) == 4


def test_the_users_own_model_checkpoint_stays_before_a_hosted_hook(tmp_path: Path) -> None:
    own = ModelCheckpoint(tmp_path / "own", monitor="val_acc", mode="max")
    options = {"max_epochs": 3, "enable_checkpointing": True, "num_sanity_val_steps": 0}
    trainer = make_trainer(tmp_path, own, HookAdapter(CheckpointHook(1)), **options)
    trainer.fit(Falls(), make_loader(), make_loader(1))
    trainer.validate(Falls(), make_loader(1), ckpt_path="best", verbose=False)
    assert trainer.ckpt_path == own.best_model_path


# -- reading once ------------------------------------------------------------------------------

COUNTERS = Path("/proc/self/io")


def bytes_read() -> int:
    """Return the number of bytes read by the process."""
    return int(COUNTERS.read_text().split()[1])


class Wide(TinyModule):
    """The tiny module, with ten megabytes of weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Buffer(torch.zeros(2_500_000))


@pytest.mark.skipif(not COUNTERS.exists(), reason="the system counts no bytes")
@pytest.mark.parametrize("by_word", [True, False], ids=["last", "path"])
def test_a_resume_reads_its_file_at_most_twice(
    tmp_path: Path, monkeypatch: Any, by_word: bool
) -> None:
    """The first read compares the checksums, the second loads the contents."""
    monkeypatch.setattr(checksum, "SETTLED", -1.0)  # the file is new

    def fit(max_epochs: int, ckpt_path: str | Path | None = None) -> None:
        options = {"max_epochs": max_epochs, "enable_checkpointing": True}
        trainer = make_trainer(tmp_path, CheckpointHook(interval=1, max_keep_ckpts=1), **options)
        trainer.fit(Wide(), make_loader(2), ckpt_path=ckpt_path)

    fit(1)
    fit(2, "last")  # triggers all lazy imports
    file = tmp_path / "epoch_2.pth"
    size, before = file.stat().st_size, bytes_read()
    fit(2, "last" if by_word else file)
    assert size <= bytes_read() - before < 2.1 * size
