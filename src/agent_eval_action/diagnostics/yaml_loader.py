"""Parse YAML into JSON-like values: string keys, YAML 1.2 booleans; no tags, repeated keys or alias bombs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import yaml

from agent_eval_action.diagnostics.suggestions import JsonPath, shorten
from agent_eval_action.errors import Unreadable

MAX_NODES = 200_000
MAX_DEPTH = 200
_CORE = "tag:yaml.org,2002:"
_MERGE = _CORE + "merge"
_SCALARS = frozenset({_CORE + name for name in ("null", "bool", "int", "float", "str")})


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads dates and yes/no/on/off as strings, like YAML 1.2 and editors' schemas."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the attribute PyYAML reads
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag != _CORE + "timestamp" and not (tag == _CORE + "bool" and first in "yYnNoO")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def parse_yaml(path: Path, text: str) -> tuple[Any, Callable[[JsonPath], int | None]]:
    """The value, and a function that returns the line of the value at a path. Raises Unreadable."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise Unreadable(path, "is empty")
        return _Builder(path, loader).build(node, ()), partial(_line, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"is not valid YAML: {error.problem or error.context}"
        raise Unreadable(path, message, mark.line + 1 if mark else None) from None
    except yaml.YAMLError as error:
        raise Unreadable(path, f"is not valid YAML: {' '.join(str(error).split())[:200]}") from None
    except RecursionError:
        raise Unreadable(path, "is nested too deeply") from None


class _Builder:
    def __init__(self, path: Path, loader: _Loader) -> None:
        self._path = path
        self._loader = loader
        self._nodes = 0

    def build(self, node: yaml.Node, above: tuple[int, ...]) -> Any:
        line = node.start_mark.line + 1
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Unreadable(self._path, f"holds more than {MAX_NODES} values, aliases written out", line)
        if id(node) in above:
            raise Unreadable(self._path, "holds an alias that contains itself", line)
        if len(above) > MAX_DEPTH:
            raise Unreadable(self._path, f"is nested more than {MAX_DEPTH} levels deep", line)
        if isinstance(node, yaml.MappingNode) and node.tag == _CORE + "map":
            return self._mapping(node, (*above, id(node)))
        if isinstance(node, yaml.SequenceNode) and node.tag == _CORE + "seq":
            return [self.build(item, (*above, id(node))) for item in node.value]
        if node.tag not in _SCALARS:
            shown = shorten(str(node.tag))
            raise Unreadable(self._path, "holds a YAML tag", line, value=shown, hint="write plain values")
        try:
            return self._loader.construct_object(node)
        except ValueError:
            message = "holds a value that is not what its tag says"
            raise Unreadable(self._path, message, line, value=str(node.value)[:80]) from None

    def _mapping(self, node: yaml.MappingNode, above: tuple[int, ...]) -> dict[str, Any]:
        own: set[str] = set()
        for key, _ in node.value:
            if key.tag != _MERGE:
                if not isinstance(key, yaml.ScalarNode):
                    raise Unreadable(self._path, "holds a key that is not a plain word", key.start_mark.line + 1)
                if key.value in own:
                    raise Unreadable(self._path, "writes a key twice", key.start_mark.line + 1, value=key.value)
                own.add(key.value)
        built: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag != _MERGE:
                built[key.value] = self.build(value, above)
                continue
            for merged in reversed(_merged_nodes(value)):
                inherited = self.build(merged, above)
                if not isinstance(inherited, dict):
                    raise Unreadable(self._path, "`<<` merges mappings only", key.start_mark.line + 1)
                built |= {name: item for name, item in inherited.items() if name not in own}
        return built


def _line(root: yaml.Node | None, json_path: JsonPath) -> int | None:
    """The line of a value; for merged keys, the line in the mapping they come from."""
    node = reduce(_child, json_path, root)
    return None if node is None else node.start_mark.line + 1


def _child(node: yaml.Node | None, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode):
        items: list[yaml.Node] = node.value
        return items[step] if isinstance(step, int) and 0 <= step < len(items) else None
    if not isinstance(node, yaml.MappingNode):
        return None
    merged: yaml.Node | None = None
    for key, value in node.value:
        if key.tag == _MERGE:
            merged = merged or next((found for base in _merged_nodes(value) if (found := _child(base, step))), None)
        elif key.value == step:
            own: yaml.Node = value
            return own
    return merged


def _merged_nodes(value: yaml.Node) -> list[yaml.Node]:
    """The mappings that a ``<<`` names; the first one wins."""
    return list(value.value) if isinstance(value, yaml.SequenceNode) else [value]
