"""How the documentation is built: ``make docs``, where every warning is an error."""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from pathlib import Path
from pydoc import locate
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from lightning.pytorch.callbacks import Callback

import lightning_hooks

sys.path.insert(0, str(Path(__file__).parent))

project = "lightning_hooks"
author = "the lightning_hooks authors"
version = release = lightning_hooks.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "matplotlib.sphinxext.plot_directive",
    "sphinx_copybutton",
    "hook_pages",
    "departures",
]
html_theme = "furo"
html_title = "lightning_hooks"
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_js_files = ["tables.js"]
html_logo = html_favicon = "static/logo.svg"
copybutton_selector = "div:not(.highlight-none):not(.printed) > div.highlight > pre"
copybutton_prompt_text = ">>> "
copybutton_exclude = ".linenos, .gp, .go"
exclude_patterns = ["build", "results"]  # a page includes the latter

# what is documented is written once, in the docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
default_role = "code"
nitpicky = True  # what a docstring points to is on a page
nitpick_ignore_regex = [("py:.*", r"(enum|pickle|torch|lightning\.pytorch)\..*")]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# pictures are drawn when the pages are built, so that they show what the code does
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 120)]
plot_include_source = False


def formula(self: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers draw without a script."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    self.body.append(convert(node.astext(), display=display))
    if display == "inline":
        self.body.append("&#8288;")  # no line begins with the full stop that follows
    raise nodes.SkipNode


def signature(app: Any, what: str, name: str, obj: Any, *_: Any) -> tuple[str, None] | None:
    """Show what a hook takes: autodoc would show the ``__new__`` that all of them share."""
    if what != "class" or not issubclass(obj, Callback):
        return None
    if obj.__init__ is object.__init__:  # it shows what that __new__ takes
        return "()", None
    given = inspect.signature(obj)
    plain = [p.replace(annotation=p.empty) for p in given.parameters.values()]
    return str(given.replace(parameters=plain, return_annotation=given.empty)), None


LINKS = {
    r"docs/": "",
    r"examples/\w+\.py": "examples.md",
    r"(?:notebooks/)?(\w+)\.ipynb": r"notebooks/\1.md",
    r"tests/old_code/README\.md": "standin.md",
    r"lightning_hooks/engine/driver/driver\.py": (
        "architecture.md#lightnings-events-become-the-ten-points"
    ),
    r"lightning_hooks/engine/points\.py": "architecture.md#the-loop",
    r"lightning_hooks/dialects/__init__\.py": "dialects/index.md",
    **{rf"{name.upper()}\.md": f"{name}.md" for name in ("changelog", "contributing", "security")},
}
"""Pages in place of files that README and its like link to."""


def included(app: Any, path: Any, page: str, content: list[str]) -> None:
    """Let links of files from the root lead to pages; show a notebook with its outputs."""
    if path.suffix == ".ipynb":
        content[0] = as_page(json.loads(content[0]))
    for file, place in LINKS.items():
        content[0] = re.sub(rf"\]\((?:\.\./)*{file}", f"](/{place}", content[0])


def as_page(notebook: dict[str, Any]) -> str:
    """Return a notebook, as it is kept, in Markdown: text, code, what it printed and drew."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        language = "text" if re.search("^[!%]", source, re.M) else "python"  # the shell's lines
        code = source if cell["cell_type"] == "markdown" else fence(language, source)
        parts.append(folded(code) if source.startswith("%%writefile digits.py") else code)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"data:image/png;base64,{data['image/png'].strip()}"
                parts.append(f"![picture of the cell above]({picture})")
            else:
                text = output.get("text") or data.get("text/plain", "")
                parts.append(fence("text", "".join(text), ":class: printed\n"))
    return "\n\n".join(parts)


def folded(code: str) -> str:
    """Return a cell that all notebooks share, to be opened by a click."""
    return f"<details><summary>the data and the net</summary>\n\n{code}\n\n</details>"


def fence(language: str, text: str, options: str = "") -> str:
    """Return a block of code."""
    return f"~~~~~~{{code-block}} {language}\n{options}\n{text}\n~~~~~~"


@functools.cache
def documented() -> set[object]:
    """Return the classes that a page has."""
    pages = "".join(
        page.read_text(encoding="utf-8") for page in Path(__file__).parent.rglob("*.md")
    )
    return {locate(path) for path in re.findall(r"^\.\. autoclass:: (\S+)", pages, re.M)}


def documented_bases(app: Any, name: str, obj: Any, options: Any, bases: list[type]) -> None:
    """Show a class's nearest base that a page has, in the place of ours that none has."""
    ours = [base for base in bases if base.__module__.startswith("lightning_hooks.")]
    nearest = [base for base in obj.__mro__[1:] if base in documented()][:1]
    bases[:] = nearest * bool(ours) + [base for base in bases if base not in ours]


def without_empty_bases(app: Any, page: nodes.document) -> None:
    """Leave out the line on bases where autodoc names none of them."""
    for paragraph in list(page.findall(nodes.paragraph)):
        if paragraph.astext() == "Bases:":
            paragraph.parent.remove(paragraph)


def setup(app: Any) -> None:
    """Connect them."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-bases", documented_bases)
    app.connect("include-read", included)
    app.connect("doctree-read", without_empty_bases)
