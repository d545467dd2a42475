"""rouge-score's tokenizer without all of NLTK: a fiftieth of the time, the same words."""

from __future__ import annotations

import builtins
import importlib.util
import types
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


def default_tokenizer() -> Callable[[str], list[str]]:
    """What rouge-score's ``DefaultTokenizer(use_stemmer=True).tokenize`` does.

    It needs one module of NLTK, ``nltk.stem.porter``, but importing that the usual way runs NLTK's own ``__init__``,
    which imports scipy and takes over a second of processor time. Where NLTK's files do not allow the short way
    (another version), the usual way is taken.
    """
    tokenize = importlib.import_module("rouge_score.tokenize").tokenize
    try:
        porter = _PrivateModules("nltk").load("nltk.stem.porter")
    except (ImportError, AttributeError):
        porter = importlib.import_module("nltk.stem.porter")
    return partial(tokenize, stemmer=porter.PorterStemmer())


class _PrivateModules:
    """Modules of one package, executed without the ``__init__`` of their packages and without ``sys.modules``.

    Other threads import while this runs: what they see in ``sys.modules`` must be whole, so nothing is put there.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._loaded: dict[str, types.ModuleType] = {}

    def load(self, name: str) -> types.ModuleType:
        """The module of this dotted name; raises ImportError where there is none."""
        if name in self._loaded:
            return self._loaded[name]
        spec = _find(name)
        if spec.loader is None:
            raise ImportError(f"no module {name}", name=name)
        module = importlib.util.module_from_spec(spec)
        # an `import` statement asks the builtins of the module it stands in
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        self._loaded[name] = module
        spec.loader.exec_module(module)
        return module

    def _import(self, name: str, *arguments: Any, **named: Any) -> Any:
        """``__import__``: modules of the package are private, all others are imported as usual."""
        if name.split(".", maxsplit=1)[0] != self._package:
            return builtins.__import__(name, *arguments, **named)
        wanted: tuple[str, ...] = arguments[2] if len(arguments) > 2 else named.get("fromlist", ())  # noqa: PLR2004 - fromlist is the third
        if not wanted:
            raise ImportError(f"import {name}: only `from … import` is known here", name=name)
        if _find(name).submodule_search_locations is None:
            return self.load(name)
        package = types.SimpleNamespace()  # `from package import module`
        for module in wanted:
            setattr(package, module, self.load(f"{name}.{module}"))
        return package


def _find(name: str) -> ModuleSpec:
    """Where a module's file is, found without importing the packages it is in."""
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), path)
        if spec is None or (count < len(parts) and spec.submodule_search_locations is None):
            raise ImportError(f"no module {name}", name=name)
        path = list(spec.submodule_search_locations or ())
    assert spec is not None  # noqa: S101 - a name has at least one part
    return spec
