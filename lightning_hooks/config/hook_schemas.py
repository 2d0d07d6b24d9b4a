"""The JSON Schema of hooks' arguments, and of the dicts that choose a hook by its name."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from lightning_hooks.config.docstrings import argument_texts, summary
from lightning_hooks.config.json_types import json_type
from lightning_hooks.engine.priority import Priority
from lightning_hooks.engine.registry import ORDER_KEYS
from lightning_hooks.utils.arguments import argument_owners

__all__ = ["HOOK", "INHERITING", "ORDER", "HookSchemas", "Schema", "definition_of"]

Schema = dict[str, Any]

ORDER: Schema = {
    "priority": {
        "anyOf": [
            {"enum": [form for name in Priority.__members__ for form in (name, name.lower())]},
            {"type": "integer", "minimum": 0, "maximum": 100},
        ],
        "description": "The place among the hooks: those of a lower value are called earlier.",
    },
    **{
        key: {"type": ["string", "array"], "description": "Names of other hooks."}
        for key in ORDER_KEYS
    },
    "_delete_": {"type": "boolean", "description": "Whether nothing is inherited here."},
}
"""Keys of a hook's dict that are no arguments of the hook."""


HOOK, INHERITING = "hook", "inheriting_hook"
"""Names of the definitions of a hook's dict, with its type."""


class HookSchemas:
    """Makes schemas that refer to the definitions of classes by their names.

    Keywords of a schema that concern dicts leave other values alone, as null.

    Args:
        classes: The classes by name.
        complete: Whether no part of a dict is inherited from another file, so that arguments
            without a default must be there.
    """

    def __init__(self, classes: Mapping[str, type], *, complete: bool = True) -> None:
        self.classes = classes
        self.complete = complete

    def arguments(self, name: str, *keys: str) -> Schema:
        """Return the schema of a dict with a class's arguments.

        Args:
            name: The name of the class.
            keys: Keys beside the arguments, of which one chooses the class.
        """
        owners, takes_any = argument_owners(self.classes[name])
        parts = [name, *(["order"] if keys else [])]
        schema: Schema = {"allOf": [{"$ref": f"#/definitions/{one}"} for one in parts]}
        if not takes_any:
            schema["propertyNames"] = {"enum": [*owners, *keys, *(ORDER if keys else ())]}
        required = [one for one, owner in owners.items() if _default(one, owner) is _NONE]
        return {**schema, "required": required} if self.complete and required else schema

    def by_type(self, default: str | None = None) -> Schema:
        """Return the schema of a dict with the ``type`` of a hook.

        Args:
            default: The name of the class without a type; None where there must be one.
        """
        hook: Schema = {"$ref": f"#/definitions/{HOOK if self.complete else INHERITING}"}
        if default is None or not self.complete:
            return {"allOf": [hook]}
        return {"if": {"required": ["type"]}, "then": hook, "else": self.arguments(default, "type")}

    def by_policy(self, family: str) -> Schema:
        """Return the schema of a dict with the ``policy`` of a schedule, or its ``type``.

        Args:
            family: The end of the names: ``"LrUpdaterHook"``.
        """
        policies = {
            name: [policy, policy.lower()]
            for name in self.classes
            if (policy := name.removesuffix(family)) not in ("", name)
        }
        chosen = self.chosen_by("policy", policies)
        return {"if": {"required": ["type"]}, "then": self.by_type(), "else": chosen}

    def chosen_by(self, key: str, spellings: Mapping[str, Sequence[str]]) -> Schema:
        """Return the schema of a dict whose ``key`` chooses the class.

        Args:
            key: ``"type"`` or ``"policy"``.
            spellings: The values for each class.
        """
        branches = [
            {
                "if": {"required": [key], "properties": {key: {"enum": [*names]}}},
                "then": self.arguments(name, key),
            }
            for name, names in spellings.items()
        ]
        known = [one for names in spellings.values() for one in names]
        schema: Schema = {"properties": {key: {"enum": known}}, "allOf": branches}
        return {**schema, "required": [key]} if self.complete else schema


def definition_of(cls: type) -> Schema:
    """Return the types, defaults and descriptions of a class's arguments.

    >>> from lightning_hooks import EMAHook
    >>> definition_of(EMAHook)["properties"]["interval"]
    {'type': 'integer', 'default': 1, 'description': 'Optimizer steps from one update to the next.'}
    """
    texts = argument_texts(cls)
    properties = {}
    for name, owner in argument_owners(cls)[0].items():
        one = json_type(typing.get_type_hints(vars(owner)["__init__"]).get(name, object))
        default = _default(name, owner)
        if _is_json(default):
            one = {**one, "default": default}
        properties[name] = {**one, **({"description": texts[name]} if name in texts else {})}
    return {"description": summary(cls), "properties": properties}


_NONE = inspect.Parameter.empty


def _default(name: str, owner: type) -> Any:
    return inspect.signature(vars(owner)["__init__"]).parameters[name].default


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
