"""``HubCheckpointHook``: the best or the last checkpoint on the Hugging Face Hub."""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import importlib.metadata
import json
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from typing import Any

import lightning as L

from lightning_hooks import __version__
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api import logged_values, precision
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving.export import weights_in
from lightning_hooks.storage import files, weights
from lightning_hooks.utils.arguments import check_bool, check_choice, check_number, shown
from lightning_hooks.utils.packages import require
from lightning_hooks.utils.plain_types import plain
from lightning_hooks.utils.secrets import describe, masked

__all__ = ["HubCheckpointHook"]

WRITERS = {
    "best": "BestCheckpointHook(...) or CheckpointHook(save_best=...)",
    "last": "CheckpointHook(...)",
}
"""The hooks that write the files, by ``upload``."""

CARD = "README.md"

MARK = "<!-- written by lightning_hooks; delete this line to keep the text as it is -->"
"""A card without this line was written by a person and is not replaced."""

TRAINER = ("max_epochs", "max_steps", "accumulate_grad_batches", "precision")


@HOOKS.register_module()
class HubCheckpointHook(Hook):
    """Upload the best or the last checkpoint to the Hugging Face Hub, with a model card.

    The checkpoint is a file of a ``BestCheckpointHook``, ``EvalHook`` or ``CheckpointHook`` in the
    same Trainer. The Hub's file is ``best.pth`` or ``last.pth``, with ``format="safetensors"``
    ``best.safetensors`` or ``last.safetensors``; earlier versions stay in the repository's history.
    An upload begins when the file is complete and on the disk, and runs in the Hub client's thread
    (``HfApi.run_as_future``) beside the training. A file that is superseded before its upload
    begins is left out.

    ``README.md``, the model card, lists metrics, hyper-parameters and hooks of the run, with
    ``***`` for passwords and keys. A card written by a person is not replaced.

    A failed upload costs one line, and training goes on. At the end of the run, the hook tries a
    failed upload once more and waits for it. If the newest file is then not on the Hub, a second
    line has the command to upload it.

    The token is the client's own: ``hf auth login``, or ``HF_TOKEN``. ``HF_ENDPOINT`` names another
    server.

    Args:
        repo_id: The repository, ``"user/name"``, created if missing.
        upload: ``"best"`` or ``"last"``.
        private: Whether a new repository is private.
        card: Whether to write a model card.
        timeout: Seconds to wait for the upload at the end of the run, plus one second for each
            megabyte of the file; at least 0.
        format: ``"checkpoint"``: the whole file, from which a run can be resumed.
            ``"safetensors"``: its weights alone, with the hyper-parameters in the card.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for a malformed ``repo_id``, or an unknown ``upload`` or ``format``; when
            training begins, if the checkpoints are not local files.
        ImportError: if huggingface_hub, or safetensors for this format, is not installed.

    Note:
        mmcv has no such hook.
    """

    _reads_step = False
    _transient = ("_runner", "_api", "_job")
    _runner: Any = None  # a Runner, in a run
    _api: Any = None
    """The client, while this process uploads."""
    _newest = _uploaded = ""
    """Paths of the newest file, and of the file uploaded last."""
    _job: concurrent.futures.Future[None] | None = None

    def __init__(
        self,
        repo_id: str,
        upload: str = "best",
        private: bool = True,
        card: bool = True,
        timeout: float = 10.0,
        format: str = "checkpoint",
    ) -> None:
        super().__init__()
        if not isinstance(repo_id, str):
            raise TypeError(f'repo_id must be a str, "user/name", got {shown(repo_id)}')
        if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repo_id, re.ASCII):
            raise ValueError(f'repo_id must be "user/name", got {shown(repo_id)}')
        check_choice("upload", upload, [*WRITERS])
        check_bool(private=private, card=card)
        check_number("timeout", timeout, 0)
        check_choice("format", format, ("checkpoint", "safetensors"))
        require("huggingface_hub", "HubCheckpointHook")
        if format == "safetensors":
            require("safetensors", "HubCheckpointHook")
        self.repo_id, self.upload, self.private = repo_id, upload, private
        self.card, self.timeout, self.format = card, timeout, format
        self._metrics: dict[int, dict[str, float]] = {}  # by the iterations done

    def before_run(self, runner: Runner) -> None:
        """Check that a hook writes files for the Hub, and open the client on rank 0."""
        self._runner, self._api, self._has_warned = runner, None, False
        self._newest = self._uploaded = ""
        self._job = None
        saving = natives_with("_kept_kinds", runner.hooks)
        writers = [hook for hook in saving if self.upload in hook._kept_kinds]
        if runner.no_uploads:
            self._warn(f"it pushes nothing, as {runner.no_uploads}")
            return
        if not writers:
            needed = WRITERS[self.upload]
            self._warn(f"it pushes nothing, as no hook writes such a file: add {needed}")
            return
        directories = [str(hook._checkpoint_directory(runner)) for hook in writers]
        remote = [directory for directory in directories if not files.is_local(directory)]
        if remote or precision.writes_directories(runner.trainer.strategy):
            where = remote[0] if remote else "folders of shards"
            raise ValueError(
                f"HubCheckpointHook pushes local files, and the checkpoints are {where}: "
                "push them with on_saved=..., a function of the path"
            )
        if runner.is_writer:
            import huggingface_hub

            self._settings = settings_of(runner)
            self._api = huggingface_hub.HfApi()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep the metrics for the model card."""
        self._keep_metrics(trainer)

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep the metrics of a run without validation."""
        self._keep_metrics(trainer)

    def _keep_metrics(self, trainer: L.Trainer) -> None:
        if self._api is not None:
            metrics = trainer.callback_metrics.items()
            numbers = {name: float(value) for name, value in metrics if value.numel() == 1}
            self._metrics[self._runner.iter] = numbers

    def on_checkpoint_saved(self, path: str) -> None:
        """Upload a new file of the run's hooks, if the file is the best or the last."""
        messages = (self._runner.meta or {}).get("hook_msgs", {})
        if self._api is not None and messages.get(f"{self.upload}_ckpt") == path:
            self._newest = path
            self._job = self._api.run_as_future(self._push, self._api, path)

    # -- in the client's thread ------------------------------------------------------------

    def _push(self, api: Any, path: str) -> None:
        """Upload a file and its card in one commit; report the result and raise nothing."""
        if path != self._newest:
            return
        bars = importlib.import_module("huggingface_hub.utils.tqdm")
        caption, metrics = self._describe(path)
        try:
            with contextlib.ExitStack() as after:
                if not bars.are_progress_bars_disabled():
                    bars.disable_progress_bars()
                    after.callback(bars.enable_progress_bars)
                file = path
                if self.format == "safetensors":
                    folder = after.enter_context(tempfile.TemporaryDirectory())
                    file = os.path.join(folder, f"{self.upload}.safetensors")
                    state = weights_in(path, self._runner.trainer)
                    weights.write_weights(state, file, weights.facts_of(path))
                url = self._commit(api, file, caption, metrics)
        except Exception as error:
            if os.path.exists(path):  # else a newer file has superseded this one
                problem = f"{self.repo_id} has not taken the {caption} ({describe(error)})"
                self._warn(f"{problem}; training goes on")
        else:
            self._uploaded, self._has_warned = path, False
            self._log("info", f"the {caption} is pushed to {url}")

    def _describe(self, path: str) -> tuple[str, dict[str, float]]:
        """Return a caption, with score, epoch and iteration, and the metrics of a file."""
        caption = f"{self.upload} checkpoint"
        entry = weights.entry_of(path)
        if entry is None:
            return caption, {}
        score = "" if entry.score is None else f" ({entry.metric} {entry.score:.6g})"
        done = f"after epoch {entry.epoch} and iteration {entry.iter}"
        return f"{caption}{score}, {done}", self._metrics.get(entry.iter, {})

    def _commit(self, api: Any, path: str, caption: str, metrics: Mapping[str, float]) -> str:
        """Commit a file, and the card unless a person has written one; return the Hub's URL."""
        from huggingface_hub import CommitOperationAdd

        url = str(api.create_repo(self.repo_id, private=self.private, exist_ok=True))
        file = self.upload + os.path.splitext(path)[1]
        additions = [CommitOperationAdd(file, path)]
        if self.card and self._owns_card(api):
            module = type(self._runner.module).__name__
            try:
                text = model_card(self.repo_id, file, caption, metrics, module, self._settings)
            except (TypeError, ValueError) as error:  # JSON does not have each value
                self._warn(f"{file} is pushed without a card ({describe(error)})")
            else:
                additions.append(CommitOperationAdd(CARD, text.encode()))
        api.create_commit(self.repo_id, additions, commit_message=caption)
        return url

    def _owns_card(self, api: Any) -> bool:
        """Return whether the repository has no card, or a card of a run."""
        if not api.file_exists(self.repo_id, CARD):
            return True
        with open(api.hf_hub_download(self.repo_id, CARD), encoding="utf-8") as file:
            return MARK in file.read()

    # -- the end ---------------------------------------------------------------------------

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Wait for the last upload; try a failed upload again."""
        self._close()

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Wait for the last upload; try a failed upload again."""
        self._close()

    def _close(self) -> None:
        api, job, self._api, self._job = self._api, self._job, None, None
        if api is None or job is None:
            return
        with contextlib.suppress(OSError):
            limit = self.timeout + os.path.getsize(self._newest) / 1e6
            ended = concurrent.futures.wait([job], limit).done
            if ended and self._uploaded != self._newest:
                job = api.run_as_future(self._push, api, self._newest)
                concurrent.futures.wait([job], limit)
        if self._uploaded != self._newest:
            file = self.upload + os.path.splitext(self._newest)[1]
            command = f"hf upload {self.repo_id} {shlex.quote(self._newest)} {file}"
            self._log("warning", f"{file} is not pushed; to push it: {command}")

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._log("warning", text)

    def _log(self, level: str, text: str) -> None:
        getattr(self._runner.logger, level)("HubCheckpointHook: %s", text)


# -- the model card ------------------------------------------------------------------------------


def settings_of(runner: Runner) -> dict[str, Any]:
    """Return hyper-parameters, hooks, the Trainer's settings and versions, without secrets."""
    hooks = [
        {"type": type(hook).__name__, **(hook._state_arguments() if isinstance(hook, Hook) else {})}
        for hook in runner.hooks
    ]
    versions = {name: importlib.metadata.version(name) for name in ("torch", "lightning")}
    settings: dict[str, Any] = {
        "hyper_parameters": logged_values.hyper_parameters(runner.module),
        "trainer": {name: getattr(runner.trainer, name) for name in TRAINER},
        "hooks": hooks,
        "versions": {**versions, "lightning_hooks": __version__},
    }
    return dict(masked(plain(settings)))


def model_card(
    repo_id: str,
    file: str,
    caption: str,
    metrics: Mapping[str, float],
    module: str,
    settings: Mapping[str, Any],
) -> str:
    """Return the text of a model card, with the lines that load the file.

    Args:
        repo_id: The repository, ``"user/name"``.
        file: The name of the checkpoint in the repository.
        caption: A phrase on the checkpoint, as "best checkpoint, after epoch 3".
        metrics: The values of the metrics when the checkpoint was written.
        module: The name of the LightningModule's class.
        settings: The settings of the run, in types that JSON has.

    >>> card = model_card("me/digits", "best.pth", "best checkpoint", {"acc": 0.98}, "Net", {})
    >>> "| `acc` | 0.98 |" in card.splitlines()
    True
    """
    parts = [
        "---\nlibrary_name: lightning\ntags:\n- lightning_hooks\n---",
        MARK,
        f"# {repo_id.rpartition('/')[2]}",
        f"`{file}` is the {caption}.",
    ]
    imports, load = "", f"model = {module}.load_from_checkpoint(path)"
    if weights.is_safetensors(file):
        imports = "from safetensors.torch import load_model\n"
        load = f"model = {module}(...)\nload_model(model, path)"
    if metrics:
        rows = [f"| `{_cell(name)}` | {value:.6g} |" for name, value in sorted(metrics.items())]
        parts.append("\n".join(["| metric | value |", "|---|---|", *rows]))
    parts += [
        "## Use",
        "```python\nfrom huggingface_hub import hf_hub_download\n"
        f'{imports}\npath = hf_hub_download("{repo_id}", "{file}")\n{load}\n```',
        "## Configuration",
        f"```json\n{json.dumps(settings, indent=2, default=str)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")
