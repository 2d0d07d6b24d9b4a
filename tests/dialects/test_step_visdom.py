"""Visdom writers of the dialects, on a real server."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks.dialects import cvpods, pet
from lightning_hooks.dialects import detectron2 as d2
from support import training, visdom_server
from support.as_library import load_as

visdom = pytest.importorskip("visdom")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*have no .val_dataloader"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # visdom's own
]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server."""
    with visdom_server.serve(tmp_path_factory.mktemp("visdom")) as server:
        yield server.port


def window(port: int, env: str, win: str | None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/win_data", json.dumps({"win": win, "eid": env}).encode()
    )
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


fit = partial(training.fit, host=True, batches=3, max_epochs=2)


@pytest.mark.parametrize("dialect", [cvpods, pet], ids=["cvpods", "pet"])
def test_scalars_and_images_are_on_the_page(tmp_path: Path, port: int, dialect: Any) -> None:
    env = dialect.__name__.rpartition(".")[2]
    if dialect is cvpods:  # cvpods' argument names
        writer = cvpods.VisdomWriter("127.0.0.1", port, 1, ["total_loss"], env=env)
    else:
        writer = pet.VisdomWriter(1, env=env, server="http://127.0.0.1", port=port)
    image = torch.full((3, 4, 4), 0.5)
    if dialect is pet:

        class Shows(pet.TrainHook):
            def after_step(self, storage: Any, **kwargs: Any) -> None:
                storage.put_image("input", image)

        hooks: list[Any] = [Shows(), pet.PeriodicWriter([writer], max_iter=3, display_iter=2)]
    else:

        class Puts(dialect.HookBase):  # type: ignore[misc]
            def after_step(self) -> None:
                self.trainer.storage.put_image("input", image)

        hooks = [Puts(), dialect.PeriodicWriter([writer], period=2)]
    trainer = fit(tmp_path, *hooks)
    losses = trainer.lightning_module.losses
    found = window(port, env, "total_loss")["content"]["data"][0]
    steps = {cvpods: [0, 1, 3, 5], pet: [1, 2, 4, 5]}[dialect]
    first = 1 if dialect is pet else 0
    assert found["x"] == steps
    assert found["y"] == pytest.approx([losses[step - first] for step in steps])
    assert window(port, env, "input")["type"] == "image"
    assert ("train_loss" in window(port, env, None)) == (dialect is pet)


@pytest.mark.parametrize("package", ["lightning_hooks", "cvpack2"])
def test_a_users_own_writer(package: str, tmp_path: Path, port: int, monkeypatch: Any) -> None:
    library: Any = cvpods
    if package == "cvpack2":
        library = load_as(monkeypatch, "cvpack2.utils.dump.events", "cvpods_events_2021")

    class PlotWriter(library.EventWriter):  # type: ignore[misc]
        """A writer as in cvpack2."""

        def __init__(self) -> None:
            self.viz = visdom.Visdom(
                server="http://127.0.0.1", port=port, env=package, use_incoming_socket=False
            )

        def write(self) -> None:
            storage = library.get_event_storage()
            for name, value in storage.latest_with_smoothing_hint(1).items():
                self.viz.line([value], [storage.iter], win=name, update="append", name=name)
            for name, image, _ in storage.vis_data:
                self.viz.image(image, win=name)
            storage.clear_images()

    trainer = fit(tmp_path, cvpods.PeriodicWriter([PlotWriter()], period=3))
    found = window(port, package, "total_loss")["content"]["data"][0]
    assert found["x"] == [0, 2, 5]
    losses = trainer.lightning_module.losses
    assert found["y"] == pytest.approx([losses[i] for i in (0, 2, 5)])


def test_an_unreachable_visdom_server_logs_one_warning(tmp_path: Path, caplog: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        writer = d2.VisdomWriter(server="http://127.0.0.1", port=taken.getsockname()[1])
        writer._page.timeout = 0.5
        with caplog.at_level("WARNING"):
            trainer = fit(tmp_path, d2.PeriodicWriter([writer], period=2))
    assert trainer.state.finished
    ours = [r for r in caplog.records if r.name == "lightning_hooks" and r.levelname == "WARNING"]
    assert len(ours) == 1
    assert "training goes on without it" in ours[0].getMessage()
