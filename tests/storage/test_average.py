"""The mean of the weights of several files: exact, verified, and loadable as a file of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook, average_checkpoints
from lightning_hooks.cli import main
from lightning_hooks.storage.layout import DamagedCheckpointError
from support.training import TinyNormModule, fit, make_loader, make_trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    hooks = [CheckpointHook(interval=1), BestCheckpointHook("val_loss", keep_best=2)]
    fit(folder, *hooks, module=TinyNormModule, max_epochs=4, val=2)
    return folder


def mean(paths: list[Path]) -> dict[str, Any]:
    states = [torch.load(path, weights_only=True)["state_dict"] for path in paths]
    return {
        key: torch.stack([state[key].double() for state in states]).mean(0).to(value.dtype)
        if value.is_floating_point()
        else value
        for key, value in states[-1].items()
    }


def assert_is(state: dict[str, Any], expected: dict[str, Any]) -> None:
    assert state.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(state[key], value)


def test_the_mean_loads_as_weights_and_resumes_nothing(tmp_path: Path, folder: Path) -> None:
    paths = [folder / f"epoch_{n}.pth" for n in (2, 3, 4)]
    out = tmp_path / "soup.ckpt"
    assert_is(average_checkpoints(paths, out)["state_dict"], mean(paths))
    assert_is(TinyNormModule.load_from_checkpoint(out).state_dict(), mean(paths))
    make_trainer(tmp_path).validate(TinyNormModule(), make_loader(1), ckpt_path=out, verbose=False)
    with pytest.raises(KeyError):
        fit(tmp_path, CheckpointHook(), module=TinyNormModule, ckpt_path=out, val=1)


@pytest.mark.parametrize(("which", "names"), [("last", "epoch_*"), ("best", "best_*")])
def test_the_command_finds_the_files_of_a_run(
    tmp_path: Path, folder: Path, which: str, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "soup.pth"
    with pytest.raises(SystemExit) as stopped:
        main(["average", str(folder), f"--{which}", "2", "--out", str(out)])
    assert stopped.value.code == 0
    paths = sorted(folder.glob(names))[-2:]
    printed = capsys.readouterr().out
    assert all(str(path) in printed for path in paths)
    assert_is(torch.load(out, weights_only=True)["state_dict"], mean(paths))


def test_low_precision_is_summed_in_float32(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.pth" for n in range(64)]
    for path in paths:
        torch.save({"w": torch.tensor([1.0078125], dtype=torch.bfloat16)}, path)
    state = average_checkpoints(paths)["state_dict"]
    assert state["w"].dtype == torch.bfloat16
    assert state["w"].item() == 1.0078125


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ({"w": torch.zeros(3)}, r"'w' has the shape \[2\] in .*a.pth, and \[3\] in .*b.pth"),
        ({"v": torch.zeros(2)}, r"a.pth has the weight 'w', and .*b.pth has not"),
        ({"w": torch.zeros(2), "v": torch.zeros(2)}, r"b.pth has the weight 'v', and .*a.pth has"),
    ],
)
def test_files_of_other_models_are_refused(
    tmp_path: Path, other: dict[str, Any], match: str
) -> None:
    paths = [tmp_path / "a.pth", tmp_path / "b.pth"]
    torch.save({"w": torch.zeros(2)}, paths[0])
    torch.save(other, paths[1])
    with pytest.raises(ValueError, match=match):
        average_checkpoints(paths)
    with pytest.raises(ValueError, match="at least two files"):
        average_checkpoints(paths[:1])
    paths[1].write_bytes(paths[0].read_bytes()[:-50])
    with pytest.raises(DamagedCheckpointError, match=r"b\.pth"):
        average_checkpoints(paths)


def test_the_mean_does_not_replace_one_of_its_files(folder: Path) -> None:
    paths = [folder / f"epoch_{n}.pth" for n in (3, 4)]
    before = paths[1].read_bytes()
    for out in (paths[1], folder / "latest.pth", f"{folder}/../{folder.name}/epoch_3.pth"):
        with pytest.raises(ValueError, match="is one of the files to average"):
            average_checkpoints(paths, out)
    assert paths[1].read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--last", "9"], "has 4 last files in its list checkpoints.json, not 9"),
        ([], "is a folder: write --best N"),
    ],
)
def test_a_run_with_too_few_files_is_named(
    folder: Path,
    tmp_path: Path,
    arguments: list[str],
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["average", str(folder), *arguments, "--out", str(tmp_path / "soup.pth")])
    assert stopped.value.code == 2
    assert line in capsys.readouterr().err


def test_floats_and_integers_of_one_name_have_no_mean(tmp_path: Path) -> None:
    paths = [tmp_path / "a.pth", tmp_path / "b.pth"]
    for path, dtype in zip(paths, (torch.float32, torch.bool), strict=True):
        torch.save({"w": torch.ones(2, dtype=dtype)}, path)
    for order in (paths, paths[::-1]):
        with pytest.raises(ValueError, match=r"'w' has .*\[2\] of integers in"):
            average_checkpoints(order)


def test_floats_of_eight_bits_have_a_mean(tmp_path: Path) -> None:
    paths = [tmp_path / f"{value}.pth" for value in (1, 3)]
    for path in paths:
        torch.save({"w": torch.tensor([float(path.stem)]).to(torch.float8_e4m3fn)}, path)
    assert average_checkpoints(paths)["state_dict"]["w"].float().tolist() == [2.0]
