"""Version numbers as comparable tuples."""

from __future__ import annotations

__all__ = ["LAST", "digit_version", "parse_version_info"]

LAST = "1.7.2"
"""The version of mmcv whose behaviour the stand-in has."""


def _release(version: str, length: int) -> tuple[list[int], tuple[str, int] | None, int | None]:
    from packaging.version import parse

    parsed = parse(version)
    release = [*parsed.release, *[0] * length][:length]
    pre = parsed.pre if parsed.pre or not parsed.is_prerelease else ("dev", 0)
    return release, pre, parsed.post


def digit_version(version_str: str, length: int = 4) -> tuple[int, ...]:
    """Return a version as numbers; a pre-release sorts before the release.

    >>> digit_version("1.7.2"), digit_version("2.0.0rc1") < digit_version("2.0.0")
    ((1, 7, 2, 0, 0, 0), True)
    """
    release, pre, post = _release(version_str, length)
    if pre is not None:
        order = {"a": -3, "b": -2, "rc": -1}
        return (*release, order.get(pre[0], -4), pre[1])
    return (*release, 0, 0) if post is None else (*release, 1, post)


def parse_version_info(version_str: str, length: int = 4) -> tuple[int | str, ...]:
    """Return a version as numbers, with the name of a pre-release.

    >>> parse_version_info("2.0.0rc1")
    (2, 0, 0, 0, 'rc', 1)
    """
    release, pre, post = _release(version_str, length)
    if pre is not None:
        return (*release, *pre)
    return (*release, 0, 0) if post is None else (*release, "post", post)
