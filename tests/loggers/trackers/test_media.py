"""Figures, texts, sounds and videos, read back from each backend, or as files."""

from __future__ import annotations

import io
import json
import sys
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_hooks import (
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
    log_audio,
    log_figure,
    log_text,
    log_video,
)
from lightning_hooks.loggers.delivery.record import Record, from_line, seal, to_line
from lightning_hooks.utils.media import audio_of, video_of
from support.logs.media import FRAMES, GIF, SOUND, WAV, WORDS, Telling
from support.logs.trackers import (
    REAL_CLIENTS,
    client_of,
    everything_in,
    fit,
    read_neptune,
    read_tensorboard,
    run_of,
    warnings_in,
)
from support.training import TinyModule

pytestmark = REAL_CLIENTS


def test_a_sound_and_a_video_have_what_was_given() -> None:
    with wave.open(io.BytesIO(WAV)) as file:
        samples = np.frombuffer(file.readframes(80), "<i2").reshape(80, 2).T
        assert (file.getframerate(), file.getsampwidth()) == (8000, 2)
    assert samples == pytest.approx(SOUND.numpy() * 32767, abs=0.51)
    from PIL import Image

    gif = Image.open(io.BytesIO(GIF))
    assert (gif.n_frames, gif.size, gif.info["duration"]) == (2, (6, 4), 100)
    means = []
    for number in range(2):
        gif.seek(number)
        means.append(np.asarray(gif.convert("RGB")).mean())
    assert means == [0.0, 255.0]


def test_tensorboard_holds_them(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(work, TensorboardLoggerHook(interval=2), module=Telling, epochs=1)
    _, events = read_tensorboard(work / "tf_logs")
    (image,) = events.Images("val/curve")
    assert (image.step, image.width, image.height) == (5, 40, 20)
    (text,) = events.Tensors("val/answer/text_summary")
    assert text.tensor_proto.string_val[0].decode() == WORDS
    (audio,) = events.Audio("val/speech")
    assert (audio.step, audio.encoded_audio_string, audio.sample_rate) == (5, WAV, 8000)
    (video,) = events.Images("val/rollout")
    assert video.encoded_image_string == GIF
    assert warnings_in(caplog) == []


def test_mlflow_holds_them(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(work, MlflowLoggerHook(interval=2, log_model=False), module=Telling, epochs=1)
    client = client_of(work / "mlflow.db")
    run = run_of(client).info.run_id
    for path, content in {
        "texts/val/answer/5.txt": WORDS.encode(),
        "audios/val/speech/5.wav": WAV,
        "videos/val/rollout/5.gif": GIF,
    }.items():
        assert Path(client.download_artifacts(run, path)).read_bytes() == content
    assert any("curve" in each.path for each in client.list_artifacts(run, "images"))
    assert warnings_in(caplog) == []


def test_wandb_holds_them(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(work, WandbLoggerHook(interval=2, log_artifact=False), module=Telling, epochs=1)
    (media,) = work.glob("wandb/offline-run-*/files/media")
    found = {path.suffix: path for path in media.rglob("*") if path.is_file()}
    assert found.keys() == {".png", ".html", ".wav", ".gif"}
    assert "a &lt;cat&gt;\nand more" in found[".html"].read_text()
    assert found[".wav"].read_bytes() == WAV
    assert found[".gif"].read_bytes() == GIF
    assert warnings_in(caplog) == []


def test_clearml_holds_them(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("clearml")
    fit(work, ClearMLLoggerHook(interval=2), module=Telling, epochs=1)
    stored = everything_in(work / "clearml")
    for content in (WAV, GIF, WORDS.encode()):
        assert content in stored
    assert warnings_in(caplog) == []


def test_clearml_writes_them_after_a_program_that_asked_to_exit(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ``sys.exit(1)``, ClearML's client waits for no file when a task is closed."""
    pytest.importorskip("clearml")
    fit(work, ClearMLLoggerHook(interval=2), module=Telling, epochs=1)
    with pytest.raises(SystemExit):
        sys.exit(1)
    from clearml.backend_interface.metrics.interface import Metrics

    write = Metrics._do_write_events
    monkeypatch.setattr(
        Metrics, "_do_write_events", lambda *args: (time.sleep(0.5), write(*args))[1]
    )
    work = work.parent / "again"
    fit(work, ClearMLLoggerHook(interval=2), module=Telling, epochs=1)
    assert WAV in everything_in(work / "clearml")


def test_neptune_holds_them(work: Path) -> None:
    fit(work, NeptuneLoggerHook(interval=2), module=Telling, epochs=1)
    operations = {"/".join(each.get("path", ())): each for each in read_neptune(work)}
    assert operations["val/answer"]["values"][0]["value"] == WORDS
    assert operations["val/speech/5"]["ext"] == "wav"
    assert operations["val/rollout/5"]["ext"] == "gif"
    stored = everything_in(work / ".neptune")
    assert WAV in stored
    assert GIF in stored


def test_a_tracker_without_them_is_named(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    for package in ("dvclive", "visdom"):
        pytest.importorskip(package)
    hooks = DvcliveLoggerHook(), VisdomLoggerHook(interval=2)
    fit(work, *hooks, module=Telling, epochs=1)
    (log,) = (work / "visdom").glob("*.log")
    drawn = [
        m for _, m in map(json.loads, log.read_text().splitlines()) if m["win"] == "val/answer"
    ]
    assert "a &lt;cat&gt;\nand more" in drawn[0]["data"][0]["content"]
    assert (work / "media/val/speech/5.wav").read_bytes() == WAV
    assert (work / "media/val/rollout/5.gif").read_bytes() == GIF
    assert warnings_in(caplog) == [
        "DvcliveLoggerHook cannot hold texts: the other trackers have them",
        f"no tracker of this run holds audios: they are files in {work}/media",
        f"no tracker of this run holds videos: they are files in {work}/media",
    ]


def test_a_run_without_tracker_has_files(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(work, TextLoggerHook(interval=2), module=Telling, epochs=1)
    files = {str(path.relative_to(work)) for path in work.glob("media/**/*.*")}
    assert files == {
        f"media/val/{name}"
        for name in ("curve/5.png", "answer/5.txt", "speech/5.wav", "rollout/5.gif")
    }
    assert (work / "media/val/answer/5.txt").read_text() == WORDS
    assert len(warnings_in(caplog)) == 4


def test_a_line_holds_a_sound_and_a_video() -> None:
    audio, video = audio_of("x", SOUND, 8000), video_of("x", FRAMES, 10)
    record = Record(0, 1.0, 2, texts={"t": WORDS}, audios={"a": audio}, videos={"v": video})
    assert from_line(to_line(record)) == record


@pytest.mark.parametrize("text", ["UklGR", "R0lGODlh", 3, {"a": 1}])
def test_a_strangers_line_holds_a_sound_or_nothing(text: Any) -> None:
    line = seal(json.dumps({"seq": 0, "time": 1.0, "step": 1, "audios": {"x": text}}))
    with pytest.raises(ValueError, match="a line must hold a record"):
        from_line(line)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (lambda m: log_figure(m, "x", 3), "the figure 'x' must be a figure of matplotlib's"),
        (lambda m: log_text(m, "x", 3), "the text 'x' must be a str, got 3"),
        (lambda m: log_audio(m, "x", torch.zeros(3, 9), 8), r"the audio 'x' .* shape \(3, 9\)"),
        (lambda m: log_audio(m, "x", SOUND, 0), "sample_rate must be a positive integer, got 0"),
        (lambda m: log_video(m, "x", torch.zeros(3, 9)), r"the video 'x' .* shape \(3, 9\)"),
        (lambda m: log_video(m, "x", FRAMES, 0), "fps must be positive, got 0"),
    ],
)
def test_what_is_none_is_refused(work: Path, log: Any, message: str) -> None:
    class Wrong(TinyModule):
        def on_train_batch_end(self, *args: Any) -> None:
            log(self)

    with pytest.raises((TypeError, ValueError), match=message):
        fit(work, TextLoggerHook(), module=Wrong, epochs=1)
