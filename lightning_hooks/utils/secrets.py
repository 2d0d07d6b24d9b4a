"""Keep passwords and keys out of what is printed, sent and stored: one filter, by name and by form.

A value counts as secret by the name of its argument (``api_key``, ``password``, ``Authorization``),
or by its own form: the user and password of a URL, a client's token, a bearer's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "USERINFO",
    "describe",
    "masked",
    "with_texts",
    "with_user",
    "without_secrets",
    "without_user",
]

_OWNERS = (
    "access|account|api|auth|bearer|bot|encryption|gh|github|gitlab|hf|hub|private|refresh|secret"
    "|session|signing|ssh|tracking|wandb"
)
_BEGIN = r"(?:(?<![^\W_])|(?-i:(?<=[a-z\d])(?=[A-Z])))"
"""The beginning of a word of a name: ``password`` is a word of ``db_password``, ``dbPassword``."""
_NAME = (
    rf"{_BEGIN}(?:passw(?:or)?ds?|passphrase|passcode|pwd|secrets?|credentials?|cookies?"
    rf"|authorization|auth|(?:{_OWNERS})[_-]?(?:key|token)s?)"
)
_IS_SECRET = re.compile(rf"(?:{_NAME}|(?:^|/)token)(?:$|/)", re.IGNORECASE)

USERINFO = re.compile(r"(?<=://)[^/?#\s]*@")
"""The user and the password of a URL."""

_TOKEN = re.compile(
    r"\b(?:hf_\w{8,}|gh[a-z]_\w{20,}|github_pat_\w{20,}|sk-[\w-]{20,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]+\.[\w-]+)|(?<=\bBearer )[^\s'\"]+"
)
"""Tokens of well-known services, of web standards, and in a header."""

_PAIR = re.compile(
    rf"((?:{_NAME}|(?<!\w)token)['\"]?\s*[=:]\s*['\"]?)"
    r"(?:(?<=['\"])[^'\"]*|[(\[{][^)\]}]*|[^\s'\"&,;)}\]]+)",
    re.IGNORECASE,
)
"""A secret name in a text, with the value after ``=`` or ``:``."""


def masked(value: Any) -> Any:
    """Return a value with ``***`` for secrets, at any depth of dicts, lists and tuples.

    In a text, and in the ``repr`` of an object of any other type, a value after the name of a
    secret and ``=`` or ``:`` counts too.

    >>> masked({"api_key": "1234", "uri": "http://me:1234@host/x", "pad_token": "<pad>"})
    {'api_key': '***', 'uri': 'http://***@host/x', 'pad_token': '<pad>'}
    >>> masked("connect(api_key='1234', url='http://host?token=1234')")
    "connect(api_key='***', url='http://host?token=***')"
    """
    if isinstance(value, str):
        return _PAIR.sub(r"\1***", _TOKEN.sub("***", USERINFO.sub("***@", value)))
    if type(value) in (list, tuple):
        return type(value)(map(masked, value))
    if isinstance(value, Mapping):
        return {masked(name): _masked_value(name, inner) for name, inner in value.items()}
    try:
        text = repr(value)
    except Exception:  # an object of the user's, which may have another str
        return value
    return value if masked(text) == text else masked(text)


def _masked_value(name: object, value: Any) -> Any:
    is_count = type(value) is int and str(name).endswith(("s", "S"))  # num_session_keys=7
    is_shown = value is None or is_count or isinstance(value, (bool, float))
    return masked(value) if is_shown or not _IS_SECRET.search(str(name)) else "***"


def without_secrets(value: Any) -> Any:
    """Return a value without the entries of a secret name, and without the user in a URL.

    >>> without_secrets({"project": "digits", "settings": {"api_key": "1234", "mode": "offline"}})
    {'project': 'digits', 'settings': {'mode': 'offline'}}
    >>> without_secrets({"uri": "http://me:1234@host/x", "hosts": [{"auth": "1234"}]})
    {'uri': 'http://host/x', 'hosts': [{}]}
    """
    if isinstance(value, str):
        return masked(USERINFO.sub("", value))
    if isinstance(value, (list, tuple)):
        return [*map(without_secrets, value)]
    if not isinstance(value, dict):
        return value
    kept = {name: inner for name, inner in value.items() if not _IS_SECRET.search(str(name))}
    return {name: without_secrets(inner) for name, inner in kept.items()}


def without_user(value: Any) -> Any:
    """Return a value without the users of URLs, at any depth of dicts, lists and tuples.

    >>> without_user({"last_ckpt": "sftp://me:1234@host/x/epoch_1.pth", "epoch": 1})
    {'last_ckpt': 'sftp://host/x/epoch_1.pth', 'epoch': 1}
    """
    return with_texts(value, lambda text: USERINFO.sub("", text))


def with_user(value: Any, directory: str) -> Any:
    """Return a value with a directory's user in the URLs of the directory's files.

    >>> with_user(["sftp://host/x/epoch_1.pth", 0.5], "sftp://me:1234@host/x")
    ['sftp://me:1234@host/x/epoch_1.pth', 0.5]
    """
    begin = f"{USERINFO.sub('', directory)}/"
    return with_texts(
        value,
        lambda text: f"{directory}/{text[len(begin) :]}" if text.startswith(begin) else text,
    )


def with_texts(value: Any, convert: Callable[[str], str]) -> Any:
    """Return a value with all texts converted, at any depth of dicts, lists and tuples."""
    if isinstance(value, str):
        return convert(value)
    if type(value) in (list, tuple):
        return type(value)(with_texts(inner, convert) for inner in value)
    if isinstance(value, dict):
        return {name: with_texts(inner, convert) for name, inner in value.items()}
    return value


def describe(error: BaseException) -> str:
    r"""Return an error of a client on a single line, without secrets.

    >>> describe(OSError("http://me:1234@host/x\nis down"))
    'OSError: http://host/x is down'
    """
    text = without_secrets(f"{type(error).__name__}: {error}")
    return " ".join(text.split())[:500]
