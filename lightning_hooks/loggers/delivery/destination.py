"""Check where a spool sends its records: it may be a stranger's file."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

__all__ = ["check_loggers", "check_paths", "check_server", "taken_settings", "work_dir_of"]

_FILES = (
    *("uri", "tracking_uri", "artifacts", "dir", "dvcyaml", "folder", "log_dir"),
    *("log_to_filename", "root_dir", "save_dir"),
)
"""Arguments of writers and of Lightning's loggers that name files."""

_TEXTS = "config", "notes", "tags"
"""Arguments that are stored as they are."""

_SERVERS = "http", "https", "ws", "wss", "databricks", "postgresql", "mysql", "mssql"

_SETTINGS = frozenset(
    (
        *("allow_val_change", "base_url", "console", "disable_code", "disable_git", "entity"),
        *("finish_timeout", "init_timeout", "login_timeout", "mode", "project", "quiet", "silent"),
        *("run_group", "run_job_type", "run_name", "run_notes", "run_tags"),
        *("x_disable_machine_info", "x_disable_meta", "x_disable_stats"),
        "x_transaction_log_flush_interval",
    )
)
"""Settings of W&B's that name no file, program, proxy or header."""

_OF_PROJECT = {
    **dict.fromkeys(("cache_images", "save_code", "save_dvc_exp", "sync_tensorboard"), False),
    "source_files": [],
}
"""Arguments that take files of the current project, with what they are in a replay."""

_MLFLOW = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"
_CREDENTIALS = {
    "uri": ("MLFLOW_TRACKING_URI", _MLFLOW),
    "tracking_uri": ("MLFLOW_TRACKING_URI", _MLFLOW),
    "base_url": ("WANDB_BASE_URL", ("WANDB_API_KEY",)),
}
"""By argument: the variable that names the user's server, and those with the secrets for it."""

_KNOWN_SERVERS = "https://api.wandb.ai", "https://api.forge.coreweave.com"


def work_dir_of(spool: str) -> str:
    """Return the work dir that a spool lies in.

    >>> work_dir_of("/work/spool/now-mlflow.jsonl"), work_dir_of("/work/now-mlflow.jsonl")
    ('/work', '/work')
    """
    folder = os.path.dirname(os.path.realpath(spool))
    return os.path.dirname(folder) if os.path.basename(folder) == "spool" else folder


def taken_settings(arguments: Any) -> Any:
    """Return the arguments in a spool without what a replay does not take from it.

    These are settings of W&B's that name a file, a program or a proxy, and what sends or changes
    files of the current project.

    >>> taken_settings({"init": {"settings": {"mode": "online", "x_executable": "/tmp/evil"}}})
    {'init': {'settings': {'mode': 'online'}}}
    """
    if isinstance(arguments, list):
        return [*map(taken_settings, arguments)]
    if not isinstance(arguments, Mapping):
        return arguments
    taken = {name: taken_settings(value) for name, value in arguments.items()}
    if isinstance(settings := taken.get("settings"), Mapping):
        taken["settings"] = {k: v for k, v in settings.items() if k in _SETTINGS}
    return {**taken, **{k: v for k, v in _OF_PROJECT.items() if k in taken}}


def check_paths(arguments: Any, spool: str, within: str | None = None) -> None:
    """Check that the arguments in a spool name no file outside of a folder.

    Args:
        arguments: The arguments.
        spool: The spool.
        within: The folder, or a URL; by default the work dir that the spool lies in.

    Raises:
        ValueError: if they do, or name a file by no text.
    """
    folder = work_dir_of(spool) if within is None else within
    for name, value in _texts(arguments):
        if not isinstance(value, str):
            raise ValueError(f"{spool} has {name}={value!r}, which is no path")
        path = _file_named(name, value)
        if path is not None and not _is_inside(path, folder):
            raise ValueError(
                f"{spool} has files written to {path}, outside of {folder}; if that is right, "
                f"name a folder above it: within=..., or --within"
            )


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the strings of nested arguments, each with its name; any value of one for a file."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if not (key in _TEXTS and isinstance(each, (Mapping, list))):
                yield from _texts(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, name)
    elif isinstance(value, str) or (name in _FILES and value not in (None, False)):
        yield name, value


def _file_named(name: str, value: str) -> str | None:
    """Return the path or the URL of the file that an argument names, None if it names none."""
    scheme, colon, rest = value.partition(":")
    kind = scheme.lower().partition("+")[0]
    if colon and kind in ("file", "sqlite"):
        path = rest.removeprefix("//")
        if kind == "sqlite":  # four slashes are an absolute path; a query may name another file
            return value if "?" in path or "file:" in path else path.removeprefix("/")
        return unquote(path.removeprefix("localhost"))
    if colon and kind in _SERVERS:
        return None
    if "://" in value:
        return value if name in _FILES else None
    if kind == "databricks":
        return None
    parts = re.split(r"[/\\]", value)
    is_path = os.path.isabs(value) or ".." in parts or value.startswith("~")
    return os.path.expanduser(value) if is_path or name in _FILES else None


def _is_inside(path: str, folder: str) -> bool:
    """Whether a file, and what a link below it leads to, is in a folder; or both are URLs."""
    if re.match(r"\w+:", path) and not os.path.isabs(path):
        return ".." not in path and f"{path}/".startswith(f"{folder.rstrip('/')}/")
    above = os.path.realpath(folder)
    inner = os.path.join(path, "wandb") if os.path.realpath(path) == above else path
    links = (
        os.path.join(at, each)
        for at, folders, files in os.walk(inner)
        for each in [*folders, *files]
        if os.path.islink(os.path.join(at, each))
    )
    return all(
        os.path.commonpath([above, os.path.realpath(each)]) == above
        for each in (path, inner, *links)
    )


def check_server(arguments: Any, spool: str) -> None:
    """Check that the server in a spool is the user's, if the environment has secrets for one.

    Args:
        arguments: The arguments in the spool.
        spool: The spool.

    Raises:
        ValueError: if it may be a stranger's, who would get the secrets.
    """
    for name, value in _texts(arguments):
        if name not in _CREDENTIALS or not str(value).lower().startswith("http"):
            continue
        variable, secrets = _CREDENTIALS[name]
        own = re.sub(r"(?<=://)[^/?#\s]*@", "", os.environ.get(variable, ""))
        found = [each for each in secrets if os.environ.get(each)]
        if found and value.rstrip("/") not in (own.rstrip("/"), *_KNOWN_SERVERS):
            raise ValueError(
                f"{spool} names the server {value}, which would get what is in "
                f"{' and '.join(found)}; if it is yours, set {variable}={value}"
            )


def check_loggers(arguments: Mapping[str, Any], spool: str) -> None:
    """Check that the loggers in a spool are of installed packages: importing runs their code.

    Args:
        arguments: The arguments in the spool.
        spool: The spool.

    Raises:
        ValueError: if one may be a file beside the spool.
    """
    loggers = arguments.get("loggers") or []
    for each in loggers if isinstance(loggers, list) else [loggers]:
        name = each.get("type") if isinstance(each, Mapping) else None
        if not isinstance(name, str):
            raise ValueError(f"{spool} has a logger without type: {each!r:.80}")
        package = name.partition(".")[0]
        if "." in name and package not in importlib.metadata.packages_distributions():
            raise ValueError(
                f"{spool} names the logger {name}, which is not in an installed package; if it is "
                f"yours, make it and pass a writer: replay(path, to=LightningWriter.connect(...))"
            )
