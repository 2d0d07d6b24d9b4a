"""``HubCheckpointHook``: the best or the last checkpoint on the Hugging Face Hub."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import precision
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.hub.hub import Hub, is_permanent
from lightning_hooks.hooks.hub.model_card import Card, draw_curves, model_card
from lightning_hooks.hooks.hub.pusher import Pusher
from lightning_hooks.hooks.hub.run_config import config_of
from lightning_hooks.hooks.hub.staged import Staged, left_in, stage
from lightning_hooks.storage import files
from lightning_hooks.utils.arguments import check_bool, check_choice, check_number
from lightning_hooks.utils.plain_types import describe

__all__ = ["HubCheckpointHook"]

NEEDED = {
    "best": "BestCheckpointHook(...) or CheckpointHook(save_best=...)",
    "last": "CheckpointHook(...)",
}
"""The hooks that write the files, by ``upload``."""


@HOOKS.register_module()
class HubCheckpointHook(Hook):
    """Pushes the best or the last checkpoint to the Hugging Face Hub, with a model card.

    The file is the one that a ``BestCheckpointHook``, ``EvalHook`` or ``CheckpointHook`` of the
    same Trainer has written; in the repository it is ``best.pth`` or ``last.pth``, and earlier ones
    are in its history. It is taken when it is complete and on the disk, and pushed by a thread: the
    training waits for nothing. Of several that wait, the newest is pushed.

    ``README.md``, the model card, has the metrics, their curves (if matplotlib is installed), the
    hyper-parameters and the hooks of the run; values whose names look like secrets are left out. A
    card that somebody has written is not replaced.

    A push that fails costs one line. It is tried again until it succeeds or a newer file is
    there, at the end of the run for ``timeout`` seconds. What is then not pushed stays in a
    folder ``hub_push_*`` beside the checkpoints, and a line has the command that pushes it.

    The token is the Hub's own: ``hf auth login``, or ``HF_TOKEN``; ``HF_ENDPOINT`` names another
    server.

    Args:
        repo_id: The repository, ``"user/name"``; it is made if it is not there.
        upload: ``"best"`` or ``"last"``.
        private: Whether a repository that is made is private.
        card: Whether a model card is written.
        timeout: Seconds at the end in which another attempt may begin, and one more for each
            megabyte of the file.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for a ``repo_id`` that is none, or another word for ``upload``; when the
            training begins, if the checkpoints are no local files.
        ImportError: if huggingface_hub is not installed.

    Note:
        mmcv has no such hook.
    """

    reads_step = False
    _pusher: Pusher[Staged] | None = None
    _runner: Any = None
    _writers: Sequence[Any] = ()
    _hub: Any = None
    _megabytes = 0.0
    """The size of the newest file."""

    def __init__(
        self,
        repo_id: str,
        upload: str = "best",
        private: bool = True,
        card: bool = True,
        timeout: float = 10.0,
    ) -> None:
        super().__init__()
        if not isinstance(repo_id, str):
            raise TypeError(f'repo_id must be a str, "user/name", got {repo_id!r}')
        if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repo_id, re.ASCII):
            raise ValueError(f'repo_id must be "user/name", got {repo_id!r}')
        check_choice("upload", upload, [*NEEDED])
        check_bool(private=private, card=card)
        check_number("timeout", timeout, 0)
        if importlib.util.find_spec("huggingface_hub") is None:
            raise ImportError(
                'HubCheckpointHook needs huggingface_hub: pip install "lightning_hooks[hub]"',
                name="huggingface_hub",
            )
        self.repo_id, self.upload, self.private = repo_id, upload, private
        self.card, self.timeout = card, timeout
        self.history: dict[int, dict[str, float]] = {}
        """The values of the Trainer's metrics, by the iterations done."""
        self._config: Mapping[str, Any] = {}
        self._has_warned = False

    # -- the run ---------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Check that there will be files, and start the thread."""
        self._runner, self._has_warned = runner, False
        self._writers = [hook for hook in runner.hooks if self._takes_from(hook)]
        if runner.writes_mmcv_files:
            self._warn("it pushes nothing, as this runner writes files of mmcv's own layout")
            return
        if not self._writers:
            self._warn(
                f"it pushes nothing, as no hook writes such a file: add {NEEDED[self.upload]}"
            )
            return
        directories = {hook.directory(runner) for hook in self._writers}
        remote = [one for one in directories if not files.is_local(one)]
        if remote or precision.writes_directories(runner.trainer.strategy):
            where = remote[0] if remote else "folders of shards"
            raise ValueError(
                f"HubCheckpointHook pushes local files, and the checkpoints are {where}: "
                "push them with on_saved=..., a function of the path"
            )
        if runner.rank == 0 and runner.writes_files:
            for folder in (one for each in directories for one in left_in(each)):
                self._log("info", f"{folder} is left of an earlier run; {self._advice(folder)}")
            self._config = config_of(runner)
            self._hub = Hub(self.repo_id, private=self.private)
            self._pusher = Pusher(
                self._push,
                is_permanent=is_permanent,
                on_pushed=self._report,
                on_dropped=Staged.discard,
                on_error=self._report_error,
            )

    def _takes_from(self, hook: Any) -> bool:
        return bool(getattr(hook, "keeps", "") == self.upload and hook.writes_files)

    def on_checkpoint_saved(self, path: str) -> None:
        """Have a file pushed, if it is the best or the last; see ``CheckpointWriter``."""
        runner, pusher = self._runner, self._pusher
        messages = (runner.meta or {}).get("hook_msgs", {})
        if pusher is None or messages.get(f"{self.upload}_ckpt") != path:
            return
        try:
            self._megabytes = os.path.getsize(path) / 1e6
            staged = stage(path, self.upload, getattr(self._writers[0], "key_indicator", "score"))
        except OSError as error:
            self._warn(f"{path} is not pushed ({describe(error)})")
        else:
            pusher.offer(staged)

    # -- the values ------------------------------------------------------------------------

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note the metrics."""
        if not trainer.sanity_checking:
            self._note(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note the metrics."""
        self._note(trainer)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note the metrics."""
        self._note(trainer)

    def _note(self, trainer: L.Trainer) -> None:
        if self._pusher is None:
            return
        done = int(Driver.of(trainer).runner.iter)
        metrics = trainer.callback_metrics.items()
        found = {name: float(value) for name, value in metrics if value.numel() == 1}
        # a new dict: the thread may be drawing the one that is there
        self.history[done] = {**self.history.get(done, {}), **found}

    def state_dict(self) -> dict[str, Any]:
        """Return the values so far, for the curves of a resumed run."""
        return {"history": {done: dict(values) for done, values in self.history.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the values of the checkpoint."""
        found = state_dict.get("history")
        self.history = {
            done: {name: value for name, value in values.items() if isinstance(value, float)}
            for done, values in (found.items() if isinstance(found, dict) else ())
            if isinstance(done, int) and isinstance(values, dict)
        }

    # -- the thread ------------------------------------------------------------------------

    def _push(self, one: Staged) -> None:
        """Push a folder, with the card if it is ours."""
        self._hub.prepare()
        if self.card and self._hub.card_is_ours:
            try:
                self._write_card(one)
            except Exception as error:  # of drawing, or a value that JSON does not have
                self._warn(f"{one.file} is pushed without a card ({describe(error)})")
        self._hub.commit(one.folder, one.caption)

    def _write_card(self, one: Staged) -> None:
        picture = "curves.png"
        metrics = {} if one.entry is None else self.history.get(one.entry.iter, {})
        is_drawn = draw_curves(dict(self.history), os.path.join(one.folder, picture))
        module = type(self._runner.module).__name__
        caption = f"`{one.file}` is the {one.caption}."
        card = Card(self.repo_id, one.file, caption, metrics, module, self._config)
        text = model_card(card, picture if is_drawn else None)
        with open(os.path.join(one.folder, "README.md"), "w", encoding="utf-8") as file:
            file.write(text)

    def _report(self, one: Staged) -> None:
        one.discard()
        self._has_warned = False
        self._log("info", f"the {one.caption} is pushed to {self._hub.url}")

    def _report_error(self, error: Exception, is_tried_again: bool) -> None:
        again = ", and it is tried again" if is_tried_again else ""
        problem = f"{self.repo_id} has not taken it ({describe(error)})"
        self._warn(f"{problem}; training goes on{again}")

    # -- the end ---------------------------------------------------------------------------

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Wait for the last push, as long as agreed."""
        self._close()

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Wait for the last push, as long as agreed."""
        self._close()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Wait for the last push, as long as agreed."""
        self._close()

    def _close(self) -> None:
        pusher, self._pusher = self._pusher, None
        if pusher is None:
            return
        left = pusher.close(self.timeout, extra=self._megabytes)
        if left is not None:
            self._log("warning", f"{left.file} is not pushed; {self._advice(left.folder)}")

    def _advice(self, folder: str) -> str:
        return f"to push it: hf upload {self.repo_id} {shlex.quote(folder)} ."

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._log("warning", text)

    def _log(self, level: str, text: str) -> None:
        getattr(self._runner.logger, level)("HubCheckpointHook: %s", text)

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_pusher", "_runner", "_writers", "_hub")
        return {k: v for k, v in super().__getstate__().items() if k not in left_out}
