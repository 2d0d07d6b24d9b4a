"""How the documentation is built: ``make docs``, where every warning is an error."""

from __future__ import annotations

import inspect
import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from lightning.pytorch.callbacks import Callback

import lightning_hooks

project = "lightning_hooks"
author = "the lightning_hooks authors"
version = release = lightning_hooks.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "matplotlib.sphinxext.plot_directive",
]
html_theme = "furo"
html_title = "lightning_hooks"
exclude_patterns = ["build", "results"]  # a page includes the latter

# what is documented is written once, in the docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
default_role = "code"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
suppress_warnings = ["myst.xref_missing"]

# pictures are drawn when the pages are built, so that they show what the code does
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 120)]
plot_include_source = False


def formula(self: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers draw without a script."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    self.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def signature(app: Any, what: str, name: str, obj: Any, *_: Any) -> tuple[str, None] | None:
    """Show what a hook takes: autodoc would show the ``__new__`` that all of them share."""
    if what != "class" or not issubclass(obj, Callback):
        return None
    given = inspect.signature(obj)
    plain = [p.replace(annotation=p.empty) for p in given.parameters.values()]
    return str(given.replace(parameters=plain, return_annotation=given.empty)), None


def from_the_root(app: Any, path: Any, page: str, content: list[str]) -> None:
    """Let the links of README and its like lead where they lead there, one folder up."""
    if path.parts[:-1] == ("..",):
        content[0] = re.sub(r"\]\((?!https?:|#)", "](../", content[0])


def setup(app: Any) -> None:
    """Connect them."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-signature", signature)
    app.connect("include-read", from_the_root)
