"""Texts for people from the docstrings of classes."""

from __future__ import annotations

import inspect
import re

__all__ = ["argument_texts", "summary"]

ARGUMENT = re.compile(r"^    (\w[\w, ]*): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def summary(cls: type) -> str:
    """Return the first sentence of a class's docstring, without its markup.

    >>> from lightning_hooks import StepLrUpdaterHook
    >>> summary(StepLrUpdaterHook)
    'Decays the rate at milestones.'
    """
    return _plain((inspect.getdoc(cls) or "").partition("\n\n")[0])


def argument_texts(cls: type) -> dict[str, str]:
    """Return what the docstrings of a class and its bases have on each argument.

    >>> from lightning_hooks import EMAHook
    >>> argument_texts(EMAHook)["resume_from"]
    'A checkpoint to resume from.'
    """
    texts: dict[str, str] = {}
    for base in cls.__mro__:
        doc = inspect.cleandoc(vars(base).get("__doc__") or "")
        section = doc.partition("\nArgs:\n")[2].partition("\n\n")[0]
        for names, text in ARGUMENT.findall(section):
            if not text.startswith("See "):  # the base that it names has the text
                for name in names.split(", "):
                    texts.setdefault(name, _plain(text))
    return texts


def _plain(text: str) -> str:
    r"""Return a sentence without reStructuredText, on one line, and without its formula's name.

    >>> _plain("Anneals the rate:\n:func:`~lightning_hooks.schedules.cosine`.")
    'Anneals the rate.'
    >>> _plain("Sets ``lr`` of :class:`~torch.optim.Optimizer`.")
    'Sets lr of Optimizer.'
    """
    text = re.sub(r": :\w+:`[^`]*`\.$", ".", " ".join(text.split()))
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    return text.replace("`", "")
