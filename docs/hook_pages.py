"""Sphinx extension: a page for each hook, from its docstring, signature and ``hooks.yaml``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx import addnodes

import lightning_hooks
from lightning_hooks._exports import HOMES

HERE = Path(__file__).parent
WORDS, FAMILIES = yaml.safe_load((HERE / "hooks.yaml").read_text(encoding="utf-8")).values()
TRACKERS = {
    name: {"words": name.removesuffix("LoggerHook")}
    for name, home in HOMES.items()
    if home.startswith("lightning_hooks.loggers.trackers.")
}
for family in FAMILIES:
    if family["name"] == "Loggers":  # an entry may say more of a tracker
        family["hooks"] = {**family["hooks"], **TRACKERS, **family["hooks"]}
HOOKS = {
    name: {"needs": "", "words": "", **{k: v for k, v in family.items() if k != "hooks"}, **own}
    for family in FAMILIES
    for name, own in family["hooks"].items()
}
"""The entry of each hook, with what it has from its family."""

PAGE = """\
# {name}

{index}
{summary}

*Other words:* {words}.

{picture}```python
{code}```

{needs}**Writes.** {writes}

**Saves.** {saves}

```{{eval-rst}}
.. autoclass:: lightning_hooks.{name}{members}
```

## See also

{see_also}
"""

CODE = """\
import lightning as L
import {package}
from lightning.pytorch.demos.boring_classes import BoringModel

from lightning_hooks import {imported}


class Net(BoringModel):  # a tiny module with data, for tries
{net}    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.step(batch))

    def configure_optimizers(self):
        return {optimizer}


hook = {hook}
trainer = L.Trainer(max_epochs=12, {trainer}callbacks=[hook{beside}])
trainer.fit(Net())
{after}"""

OPTIMIZER = "torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)"

NET = """\
    def __init__(self):
        super().__init__()
        {}

"""

PICTURE = """\
```{{eval-rst}}
.. plot::
   :alt: {curve} of {name} in the example, step by step

   from types import SimpleNamespace

   import matplotlib.pyplot as plt
   from lightning_hooks import {name}
   from lightning_hooks.schedules import sample

   hook = {hook}
   plt.figure(figsize=(7, 2.2), layout="constrained")
{draw}
   plt.ylabel("{curve}")
   plt.grid(alpha=0.3)
```

"""

SCHEDULE = """\
   values = sample(hook, max_epochs=12, iters_per_epoch=20, base_lr=0.01, base_momentum=0.9)
   plt.plot([i / 20 for i in range(240)], values, drawstyle="steps-post")
   plt.xlabel("epoch")"""

AVERAGE = """\
   values = []
   for step in range(100):
       hook._average = SimpleNamespace(steps=step, updates=step)
       values.append(hook._model_weight(None))
   plt.plot(values)
   plt.xlabel("optimizer step")"""


def summary(name: str) -> str:
    """Return the first sentence of a hook's docstring, in Markdown."""
    first = inspect.getdoc(getattr(lightning_hooks, name)).partition("\n\n")[0]
    first = re.sub(r":\s:func:`~[\w.]+`", "", " ".join(first.split()))
    return re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"`\1`", first).replace("``", "`")


def code(name: str) -> str:
    """Return the example of a hook: a script that runs."""
    entry = HOOKS[name]
    beside = entry.get("beside", "")
    trainer, after = entry.get("trainer", ""), entry.get("after", "")
    optimizer = entry.get("optimizer", OPTIMIZER)
    return CODE.format(
        imported=", ".join(sorted({name, *re.findall(r"^\w+", beside)})),
        package=optimizer.partition(".")[0],
        optimizer=optimizer,
        net=NET.format(entry["net"]) if "net" in entry else "",
        hook=f"{name}({entry['make']})",
        trainer=trainer and f"{trainer}, ",
        beside=beside and f", {beside}",
        after=after and f"{after}\n",
    )


def picture(name: str) -> str:
    """Return the plot of a hook's curve."""
    entry = HOOKS[name]
    if "curve" not in entry:
        return ""
    draw = AVERAGE if hasattr(getattr(lightning_hooks, name), "updates_at") else SCHEDULE
    hook = f"{name}({entry['make']})"
    return PICTURE.format(name=name, hook=hook, draw=draw, curve=entry["curve"])


def index(words: str) -> str:
    """Return the words, separated by commas, as entries that lead the search to a page."""
    entries = "\n".join(f"   ! single: {word.strip()}" for word in words.split(","))
    return f"```{{eval-rst}}\n.. index::\n{entries}\n```\n"


def siblings(name: str) -> list[str]:
    """Return the hooks of a hook's family."""
    return next([*family["hooks"]] for family in FAMILIES if name in family["hooks"])


def page(name: str) -> str:
    """Return the page of a hook."""
    entry = HOOKS[name]
    others = ", ".join(f"[{other}]({other}.md)" for other in siblings(name) if other != name)
    needs = f"The example needs {entry['needs']}.\n\n" if entry["needs"] else ""
    return PAGE.format(
        name=name,
        index=index(entry["words"]),
        summary=summary(name),
        words=entry["words"],
        picture=picture(name),
        code=code(name),
        needs=needs,
        writes=entry["writes"],
        saves=entry["saves"],
        members=f"\n   :members: {entry['members']}" if "members" in entry else "",
        see_also="\n".join(
            [
                f"- The guide: [](../{entry['guide']})",
                *([f"- The same family: {others}"] if others else []),
                "- [Which hook?](../which_hook.md)",
            ]
        ),
    )


def table(names: list[str], folder: str) -> str:
    """Return a table of hooks with their first sentences."""
    rows = [f"| [{name}]({folder}{name}.md) | {summary(name)} |" for name in names]
    return "\n".join(["| hook | what it does |", "|---|---|", *rows])


def contents() -> str:
    """Return the page with all hooks, family by family."""
    parts = [f"## {family['name']}\n\n{table([*family['hooks']], '')}" for family in FAMILIES]
    pages = "\n".join(HOOKS)
    hidden = f"```{{toctree}}\n:hidden:\n\n{pages}\n```"
    return "\n\n".join(["# Hooks", "Every hook has a page with an example.", *parts, hidden]) + "\n"


def write_pages(app: Any) -> None:
    """Write the pages that changed since the last build."""
    pages = {name: page(name) for name in HOOKS} | {"index": contents()}
    folder = HERE / "hooks"
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def add_to_page(app: Any, docname: str, source: list[str]) -> None:
    """End the guide of a family with a table of its hooks; let the search find a page by words."""
    app.env.note_dependency(HERE / "hooks.yaml")
    if docname in WORDS:
        source[0] = f"{index(WORDS[docname])}\n{source[0]}"
    guided = [name for name, entry in HOOKS.items() if entry["guide"] == f"{docname}.md"]
    if guided:
        source[0] += f"\n## The hooks\n\n{table(guided, '../hooks/')}\n"


def without_summary(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Leave out the sentence of a docstring that its page begins with."""
    if name.rpartition(".")[2] in HOOKS and "" in lines:
        del lines[: lines.index("")]


def mentions(page: nodes.document) -> Iterator[tuple[nodes.literal, str]]:
    """Yield the code words of a page that begin with a hook's name, once each."""
    found = set()
    for node in page.findall(nodes.literal):
        name = re.match(r"\w*", node.astext())[0]
        inside = (nodes.reference, nodes.title, addnodes.pending_xref, addnodes.desc)
        parent = node.parent
        while parent is not None and not isinstance(parent, inside):
            parent = parent.parent
        if name in HOOKS and name not in found and parent is None:
            found.add(name)
            yield node, name


def link_hooks(app: Any, page: nodes.document) -> None:
    """Link the first mention of a hook on each page to the hook's page."""
    for node, name in [*mentions(page)]:
        target = f"lightning_hooks.{name}"
        link = addnodes.pending_xref(
            "", refdomain="py", reftype="class", reftarget=target, refexplicit=True
        )
        link["refdoc"] = app.env.current_document.docname
        node.replace_self(link)
        link += node


def setup(app: Any) -> dict[str, bool]:
    """Connect them."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", add_to_page)
    app.connect("autodoc-process-docstring", without_summary)
    app.connect("doctree-read", link_hooks)
    return {"parallel_read_safe": True}
