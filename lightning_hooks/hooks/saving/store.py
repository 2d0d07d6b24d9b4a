"""Write a hook's checkpoints, and find the files again: ``CheckpointStore``."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import fsspec
import lightning as L

from lightning_hooks.engine.error_notes import listed
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api import entry_point, precision
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.storage import checkpoints, files, find_checkpoints, manifest, verification
from lightning_hooks.storage.background_save import BackgroundSaver
from lightning_hooks.storage.checkpoint_io import replace_writer, wait_for_writer
from lightning_hooks.storage.checkpoints import Target
from lightning_hooks.storage.file_names import is_inside
from lightning_hooks.storage.manifest import ChooseOld, Entry
from lightning_hooks.utils.arguments import LARGEST, check_bool, check_path
from lightning_hooks.utils.fsdp import shares_state
from lightning_hooks.utils.warn import warn

__all__ = [
    "CheckpointStore",
    "checked_out_dir",
    "directory_of",
    "filename_template",
    "newest_of",
    "refuse_other_storage",
]

TEMPLATES = "epoch_{}.pth", "iter_{}.pth"
"""mmcv's file names, to look for in a directory without a manifest."""

LONGEST_NAME = 220
"""Bytes of a file name: most systems allow 255, and a temporary name is longer."""


class CheckpointStore:
    """A hook's checkpoints: writes, lists, finds and deletes the files of a directory.

    Args:
        out_dir: The parent directory of the files; None for the work directory.
        background: Whether a thread writes the files.
        on_saved: A function of the path, called on rank 0 for each file on the disk.

    Raises:
        TypeError: for an argument of the wrong type.
    """

    runner: Any = None
    """The last run, to find its files after the fit too."""
    in_parts: bool = False
    """Whether each rank writes a part of a checkpoint, into a directory."""
    path: str = ""
    """The directory of the last run."""
    template: str = ""
    """The file names, with ``{}`` for a number; empty for names with a score."""
    create_symlink: bool | None = False
    """Whether ``latest.pth`` leads to the last file; None for local directories."""
    save_optimizer: bool = True
    resumed_from: str | None = None
    """The file that the present fit goes on from; None for a new run."""
    _earlier: frozenset[Entry] = frozenset()
    """The files listed when the run began."""
    reported: str = ""
    """The last run that other runs' files were reported to."""
    written: tuple[str, int] = ("", 0)
    """Path and iteration of the fit's last file."""

    def __init__(
        self,
        out_dir: str | None = None,
        background: bool = False,
        on_saved: Callable[[str], object] | None = None,
    ) -> None:
        check_bool(background=background)
        if not (on_saved is None or callable(on_saved)):
            raise TypeError(f"on_saved must be a function of the path or None, got {on_saved!r}")
        self.out_dir, self.on_saved = out_dir, on_saved
        self.background, self.thread = background, BackgroundSaver()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "runner"}

    # -- the directory ---------------------------------------------------------------------

    def directory(self, runner: Runner) -> str:
        """Return the directory of a run's files, by mmcv's rule for ``out_dir``."""
        return directory_of(self.out_dir, runner.work_dir)

    def begin(self, runner: Runner) -> None:
        """Keep a run, and the directory of its files."""
        self.runner, self.path = runner, self.directory(runner)
        self.written = "", 0

    def last_directory(self, work_dir: str | None = None) -> str:
        """Return the directory of the last fit's files, or of the next fit's before any fit.

        Args:
            work_dir: The work directory of the next fit; the current directory by default.
        """
        if self.runner is not None:
            return self.path
        work_dir = work_dir or "."
        return directory_of(
            self.out_dir, work_dir if "://" in work_dir else os.path.abspath(work_dir)
        )

    def open(self, runner: Runner, beside: Sequence[CheckpointStore], *, make: bool) -> None:
        """Check and make the directory of a run, so that errors come before training.

        Other runs' files in the directory are a warning, once in a run.

        Args:
            runner: The run.
            beside: The stores of the run.
            make: Whether to make the directory.

        Raises:
            FileExistsError: for other runs' files, if ``ckpt_path="last"`` has found no file.
        """
        directory = self.path
        self.in_parts = precision.writes_directories(runner.trainer.strategy)
        _check_strategy(runner.trainer, directory, self.in_parts, self.save_optimizer)
        if runner.rank != 0 or not runner.may_write:
            return
        begun = [s.directory(runner) for s in beside if s.reported == runner.run_id]
        entries, self.reported = manifest.read(directory), runner.run_id
        self._earlier = frozenset(entries)
        if directory not in begun:
            resumed, template = self.resumed_from, self.template
            if resumed and files.join(directory, os.path.basename(resumed)) == resumed:
                template = ""  # unlisted files beside the file resumed from belong to this run
            found = report_other_runs(entries, directory, runner.run_id, template)
            if found and not resumed and entry_point.asks_for_last(runner.trainer):
                raise FileExistsError(f'ckpt_path="last" has found no checkpoint to load. {found}')
            if found:
                runner.logger.warning("%s", found)
        if make:
            if files.is_local(directory):
                files.make_directory(directory)
            files.require_writable(directory)

    def clean_up(self, series: str, choose_old: ChooseOld | None, resumed_at: int) -> None:
        """Delete leftovers of killed processes, and superseded files; on rank 0."""
        runner = self.runner
        if runner.rank == 0 and runner.may_write:
            self._report_deleted(
                checkpoints.clean_up(self.path, runner.run_id, series, choose_old, resumed_at)
            )

    # -- writing ---------------------------------------------------------------------------

    def next_file(
        self,
        name: str,
        series: str,
        choose_old: ChooseOld | None,
        score: float | None = None,
        rule: str | None = None,
    ) -> Target:
        """Wait for the file before, and return the place of the run's next file."""
        self.thread.wait()  # what is told of the file before names that file
        target = Target(
            self.path,
            name,
            self.runner.run_id,
            series,
            resumable=self.save_optimizer,
            is_latest=self.create_symlink is not False,
            score=score,
            rule=rule,
            earlier=self._earlier,
            choose_old=choose_old,
        )
        self.written = target.path, self.runner.iter
        return target

    def write(
        self, trainer: L.Trainer, target: Target, line: str, after: Sequence[CheckpointStore] = ()
    ) -> None:
        """Write a Lightning checkpoint with mmcv's ``meta``, on all ranks together.

        Args:
            trainer: The Trainer, in a fit.
            target: The place of the file, from :meth:`next_file`.
            line: Logged on rank 0 when the new file is on the disk; for a file with a score, with
                the names of deleted files.
            after: Stores with files that must be on the disk before.
        """
        taken: list[str] = []

        def save(checkpoint: dict[str, Any]) -> None:
            for other in after:
                other.thread.join()
            self._report(target, line, checkpoints.save(checkpoint, target))

        def take(checkpoint: dict[str, Any], path: str) -> None:
            taken.append(path)
            if self.background:
                self.thread.save(checkpoint, save, path)
            else:
                save(checkpoint)

        _dump(trainer, target, take)
        if trainer.is_global_zero and not taken:
            self._report(target, line, self._record(trainer, target))
        if self.in_parts:  # no rank may look for the file earlier
            trainer.strategy.barrier("write_checkpoint")

    def _record(self, trainer: L.Trainer, target: Target) -> list[str]:
        """List a file that a user's ``CheckpointIO``, or a strategy with a file per rank, wrote."""
        strategy = trainer.strategy
        wait_for_writer(strategy)
        if self.background:
            warn(
                f"background=True has no effect: {type(strategy).__name__} with "
                f"{type(strategy.checkpoint_io).__name__} writes the checkpoints, while the "
                "training waits",
            )
        meta = {"epoch": trainer.current_epoch, "iter": self.runner.iter}
        return checkpoints.record(target, meta)

    def claim(self, target: Target, others: Sequence[CheckpointStore]) -> bool:
        """Keep a file just written by another store of the same names; return False without any."""
        for other in others:
            if other.written == self.written and other.save_optimizer >= self.save_optimizer:
                other.thread.wait()
                if self.runner.trainer.is_global_zero:
                    self._report_deleted(checkpoints.claim(target))
                    if self.on_saved is not None:
                        self.on_saved(target.path)
                return True
        return False

    def _report(self, target: Target, line: str, deleted: Sequence[str]) -> None:
        """Log a new file, and pass its path to the hooks, after the paths of deleted files."""
        removed = f"; removed {', '.join(deleted)}" if deleted and target.score is not None else ""
        self.runner.logger.info("%s%s", line, removed)
        self._report_deleted(deleted)
        if files.exists(target.path):  # a user's writer may not have finished
            if self.on_saved is not None:
                self.on_saved(target.path)
            for hook in natives_with("on_checkpoint_saved", self.runner.hooks):
                hook.on_checkpoint_saved(target.path)

    def _report_deleted(self, names: Sequence[str]) -> None:
        """Pass the paths of deleted files to the hooks."""
        hooks = natives_with("on_checkpoints_deleted", self.runner.hooks) if names else []
        if hooks:
            paths = [files.join(self.path, name) for name in names]
            gone = [path for path in paths if not files.exists(path)]
            for hook in hooks:
                hook.on_checkpoints_deleted(gone)


def _dump(trainer: L.Trainer, target: Target, take: Callable[[dict[str, Any], str], None]) -> None:
    """Have Lightning make a checkpoint; ``take`` takes the place of Lightning's own writer."""
    with contextlib.ExitStack() as stack:
        own_io = replace_writer(trainer.strategy, take)
        stack.callback(setattr, trainer.strategy, "checkpoint_io", own_io)
        trainer.save_checkpoint(target.path, weights_only=not target.resumable)


def newest_of(
    places: Iterable[tuple[CheckpointStore, str]], *, for_fit: bool = False
) -> str | None:
    """Return the newest intact file of several directories: the file with most iterations.

    A tie is the first directory's. Without a file, return None.

    Args:
        places: Stores, with the directories to search.
        for_fit: Whether to prefer files with the optimizer's state.
    """
    templates: dict[str, list[str]] = {}
    for store, directory in places:
        templates.setdefault(directory, []).extend(filter(None, [store.template, *TEMPLATES]))
    iterations: dict[str, int] = {}
    for directory, names in templates.items():
        path = find_checkpoints.newest_valid(directory, resumable=for_fit)
        if for_fit and path is None:  # loading the file then raises with the reason
            path = find_checkpoints.newest_valid(directory)
        path = path or verification.newest_unlisted(directory, names, for_fit=for_fit)
        if path is not None:
            of_path = [e for e in manifest.read(directory) if files.join(directory, e.name) == path]
            iterations[path] = max((entry.iter for entry in of_path), default=-1)
    return max(iterations, key=lambda path: iterations[path], default=None)


def report_other_runs(entries: Sequence[Entry], directory: str, run: str, template: str) -> str:
    """Describe other runs' files in a directory, with advice; empty without any.

    Args:
        entries: The files in the manifest.
        directory: The directory, local or remote.
        run: The run that begins.
        template: The file names of the run, to report unlisted files of equal names; empty for
            listed files only.
    """
    others = [entry for entry in entries if entry.run != run]
    found: dict[str, list[str]] = {}
    for owner, name in dict.fromkeys((f"run {entry.run}", entry.name) for entry in others):
        if files.exists(files.join(directory, name)):
            found.setdefault(owner, []).append(name)
    if template:
        known = {entry.name for entry in entries}
        numbers = find_checkpoints.numbered(directory, template)
        names = [name for name, _ in sorted(numbers, key=lambda x: x[1]) if name not in known]
        if names:
            found["a run without a list"] = names
    if not found:
        return ""
    of_each = "; ".join(f"{listed(names, 3)} of {owner}" for owner, names in found.items())
    path = files.join(directory, next(reversed(found.values()))[-1])
    return (
        f"{directory} holds checkpoints of another run: {of_each}. This run deletes none of them, "
        "but overwrites those whose names it uses. To go on with a run write "
        f'trainer.fit(..., ckpt_path="last"), or ckpt_path="{path}"; to keep all files give this '
        "run another directory: CheckpointHook(out_dir=...), HookAdapter(work_dir=...) or "
        "Trainer(default_root_dir=...)"
    )


# -- mmcv's arguments ----------------------------------------------------------------------


def checked_out_dir(out_dir: Any) -> str | None:
    """Return an ``out_dir`` argument as a string, or None.

    Raises:
        TypeError: for another type.
        ImportError: if the package for the path's storage is missing; the message names the
            package.
        ValueError: for an unknown storage.
    """
    path = check_path("out_dir", out_dir)
    if path is not None and not files.is_local(path):
        try:
            fsspec.get_filesystem_class(path.partition("://")[0])
        except (ImportError, ValueError) as error:  # fsspec names the package to install
            raise type(error)(f"out_dir={path!r}: {error}") from error
    return path


def directory_of(out_dir: str | None, work_dir: str) -> str:
    """Return the work directory, or the subdirectory of its name in ``out_dir``.

    >>> directory_of(None, "/work/run1"), directory_of("s3://bucket", "/work/run1/")
    ('/work/run1', 's3://bucket/run1')
    """
    directory = out_dir or work_dir
    if files.is_local(directory):
        directory = os.path.abspath(directory.removeprefix("file://"))
    if directory == work_dir:
        return directory
    return files.join(directory, os.path.basename(work_dir.rstrip("/" + os.sep)))


def filename_template(template: Any, by_epoch: bool) -> str:
    """Return the template of the file names, mmcv's for None.

    Raises:
        TypeError: for another type than a string.
        ValueError: for a template without exactly one number, and for names too long, outside
            the directory, or reserved.
    """
    if template is None:
        return "epoch_{}.pth" if by_epoch else "iter_{}.pth"
    if not isinstance(template, str):
        raise TypeError(f"filename_tmpl must be a str, got {template!r}")
    text = re.sub(r"\{\{|\}\}", "", template)
    fields = re.findall(r"\{(.*?)\}", text)
    # "{}" is allowed once: a second "{}" would be another argument
    is_plain = all(re.fullmatch(r"0?(:0?\d{0,2}d?)?", field) for field in fields)
    is_plain = is_plain and text.count("{") == text.count("}") == len(fields)
    if not (is_plain and (len(fields) == 1 or {field[:1] for field in fields} == {"0"})):
        raise ValueError(
            f"filename_tmpl must have one '{{}}' for the number, as in 'epoch_{{}}.pth', "
            f"got {template!r}"
        )
    name = template.format(LARGEST)
    if not is_inside(name):
        raise ValueError(
            f"filename_tmpl must be the name of a file in the work directory, got {template!r}"
        )
    if os.path.normpath(name).split(os.sep)[0] in (manifest.NAME, manifest.LATEST):
        raise ValueError(
            f"filename_tmpl must leave {manifest.NAME} and {manifest.LATEST} to the hook itself, "
            f"got {template!r}"
        )
    if max(len(part.encode(errors="replace")) for part in name.split("/")) > LONGEST_NAME:
        raise ValueError(f"filename_tmpl must make shorter names, got {template!r}")
    return template


def refuse_other_storage(file_client_args: Any) -> None:
    """Refuse mmcv's storages other than the disk.

    Raises:
        TypeError: for another type than a dict or None.
        ValueError: for another backend; the message names the alternative.
    """
    args = file_client_args
    if not (args is None or isinstance(args, Mapping)):
        raise TypeError(f"file_client_args must be a dict or None, got {args!r}")
    if args and (args.get("backend", "disk") != "disk" or args.get("prefix")):
        raise ValueError(
            f"file_client_args={dict(args)!r}: only the backend 'disk' is supported; for a remote "
            'storage give a path of fsspec\'s, out_dir="s3://bucket/path"'
        )


def _check_strategy(
    trainer: L.Trainer, directory: str, in_parts: bool, save_optimizer: bool
) -> None:
    """Raise before the first step if the strategy cannot write the files.

    Raises:
        ValueError: for a remote directory, if checkpoints are directories; for the optimizer's
            state, if torch cannot assign the state to parameters.
    """
    name = type(trainer.strategy).__name__
    if in_parts:
        if not files.is_local(directory):
            raise ValueError(
                f"{name} writes checkpoints as directories, and local ones only, not {directory}: "
                "give a local out_dir, and take them elsewhere with on_saved"
            )
    elif save_optimizer and trainer.model is not None and shares_state(trainer.model):
        raise ValueError(
            f"{name} with use_orig_params=False cannot write the optimizer's state into one file: "
            'give use_orig_params=True, state_dict_type="sharded", or '
            "CheckpointHook(save_optimizer=False)"
        )
