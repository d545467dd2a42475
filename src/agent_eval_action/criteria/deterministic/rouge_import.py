"""Importing rouge-score's tokenizer without all of NLTK: a fiftieth of the time, the same stemmer."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def default_tokenizer() -> Any:
    """rouge-score's tokenizer with its stemmer.

    rouge-score needs one module of NLTK, ``nltk.stem.porter``, but importing that runs NLTK's own
    ``__init__``, which brings scipy and takes over a second of processor time. Where the short way fails
    (another NLTK), the long one is taken.
    """
    if "nltk" not in sys.modules:
        try:
            with _bare_packages("nltk", "nltk.stem"):
                importlib.import_module("rouge_score.tokenizers")
        except (ImportError, AttributeError):
            sys.modules.pop("rouge_score.tokenizers", None)
    module = importlib.import_module("rouge_score.tokenizers")
    return module.DefaultTokenizer(use_stemmer=True)


@contextmanager
def _bare_packages(*names: str) -> Iterator[None]:
    """Packages that have a path and ran nothing; everything of them is forgotten afterwards."""
    path: list[str] | None = None
    try:
        for name in names:
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec is None or spec.submodule_search_locations is None:
                raise ImportError(name)
            path = list(spec.submodule_search_locations)
            package = types.ModuleType(name)
            package.__path__ = path
            sys.modules[name] = package
        yield
    finally:
        # whoever imports NLTK later in this process must get the whole of it
        for name in [module for module in sys.modules if module.split(".")[0] == names[0]]:
            del sys.modules[name]
