"""The client of the Hugging Face Hub, as far as it is needed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from lightning_hooks.hooks.hub.model_card import MARK

__all__ = ["Hub", "is_permanent"]

CARD = "README.md"
GIVEN_UP = (400, 401, 403, 404, 422)
"""Answers that another attempt will not change."""


class Hub:
    """A repository of models, made when it is first needed; for one thread.

    Args:
        repo_id: ``"user/name"``.
        private: Whether it is private if it is made.
    """

    def __init__(self, repo_id: str, *, private: bool) -> None:
        self.repo_id, self.private = repo_id, private
        self.url = repo_id
        self.card_is_ours = False
        """Whether the repository's model card is none, or one of a run's."""
        self._is_ready = False
        with contextlib.suppress(Exception):  # a broken client is reported by the first push
            _client()  # an import in a thread would hold up each step

    def prepare(self) -> None:
        """Make the repository, if it is not there, and look at its card."""
        if self._is_ready:
            return
        api = _client().HfApi()
        self.url = str(api.create_repo(self.repo_id, private=self.private, exist_ok=True))
        self.card_is_ours = not api.file_exists(self.repo_id, CARD) or MARK in self._card(api)
        self._is_ready = True

    def _card(self, api: Any) -> str:
        with tempfile.TemporaryDirectory() as folder, _without_bars():
            path = api.hf_hub_download(self.repo_id, CARD, local_dir=folder)
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()

    def commit(self, folder: str, message: str) -> None:
        """Push the files of a folder in one commit."""
        client = _client()
        operations = [
            client.CommitOperationAdd(path_in_repo=name, path_or_fileobj=os.path.join(folder, name))
            for name in sorted(os.listdir(folder))
        ]
        with _without_bars():
            client.HfApi().create_commit(self.repo_id, operations, commit_message=message)


def _client() -> Any:
    import huggingface_hub
    import huggingface_hub.hf_api  # which the package itself imports when it is used

    return huggingface_hub


def is_permanent(error: Exception) -> bool:
    """Whether another attempt would fail in the same way."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    return status in GIVEN_UP or type(error).__name__ == "LocalTokenNotFoundError"


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Hide the client's progress bars."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
