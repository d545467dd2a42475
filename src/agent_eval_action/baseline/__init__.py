"""Main's records: their stores (``STORES``), how they are made, pooled and looked up."""

from __future__ import annotations

from typing import Final

from agent_eval_action.baseline.branch_store import BranchStore
from agent_eval_action.baseline.stores import FileStore, RerunStore, Store
from agent_eval_action.results.base import StoreKind

STORES: Final[dict[StoreKind, type[Store]]] = {store.kind: store for store in (FileStore, BranchStore, RerunStore)}
"""Stores by their name in ``baseline.store``. ``results.base.StoreKind`` lists the same names."""
