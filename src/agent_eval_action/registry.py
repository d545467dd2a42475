"""Plug points: tables of built-in entries that installed packages extend through entry points.

A package's entry is imported when its name is looked up, or when all entries are listed, so that a run that uses
none imports none. The same holds for built-in entries given as ``module:name``. A package cannot replace a built-in
entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from agent_eval_action.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """The entries of a plug point by name, built-in ones first.

    ``group``: the entry point group. ``noun`` names an entry in messages. ``check`` returns what is wrong with a
    package's entry, or "". Unusable entries raise ConfigError, which names the package.
    """

    def __init__(
        self,
        group: str,
        noun: str,
        builtin: Mapping[str, T | str],
        check: Callable[[str, Any], str] = lambda _name, _entry: "",
    ) -> None:
        self.group = group
        self.builtin = builtin
        self._noun = noun
        self._check = check
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            builtin = self.builtin.get(name)
            if builtin is None:
                self._loaded[name] = self._load(self._entry_points[name])
            else:
                self._loaded[name] = cast("T", resolve_name(builtin) if isinstance(builtin, str) else builtin)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.builtin
        yield from self._entry_points

    def __len__(self) -> int:
        return len(self.builtin) + len(self._entry_points)

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self._entry_points

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # noqa: PLC0415 - most runs use only built-in entries

        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            entry, package = f"the {self._noun} `{point.name}`", _package(point)
            if point.name in self.builtin:
                hint = "give its entry point another name, or uninstall it"
                raise ConfigError(f"the package {package} registers {entry}, which is built in", hint)
            if point.name in found and (other := _package(found[point.name])) != package:
                raise ConfigError(f"the packages {other} and {package} both register {entry}", "uninstall one of them")
            found[point.name] = point
        return found

    def _load(self, point: EntryPoint) -> T:
        try:
            entry: T = point.load()
            wrong, cause = self._check(point.name, entry), None
        except Exception as error:  # noqa: BLE001 - whatever another package does when it is imported
            wrong, cause = f"{type(error).__name__}: {error}", error
        if wrong:
            message = f"the {self._noun} `{point.name}` of the package {_package(point)} cannot be used: {wrong}"
            raise ConfigError(message, f"its entry point is {point.value} in the group {self.group}") from cause
        return entry


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "of an unknown name"
