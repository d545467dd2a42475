"""Whatever is plugged in is documented, sampled and tested under its own name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

from agent_eval_action.baseline import STORES
from agent_eval_action.config.models import DRIVER_OPTIONS, AgentSettings, BaselineSettings
from agent_eval_action.criteria import CRITERIA
from agent_eval_action.registry import Registry
from agent_eval_action.results.base import StoreKind

ROOT = Path(__file__).resolve().parents[2]

# Table, its package, the page that documents an entry, and the tests that name it.
PLUG_POINTS = {
    "FORMATS": ("formats", "docs/formats.md", "tests/formats"),
    "CRITERIA": ("criteria", "docs/criteria.md", "tests/unit/criteria"),
    "AGENTS": ("agents", "docs/agents.md", "tests"),
    "STORES": ("baseline", "docs/baseline.md", "tests/unit/baseline"),
    "PROVIDERS": ("llm.providers", "docs/models.md", "tests/integration/llm"),
    "REPORTS": ("reports", "docs/reports.md", "tests/golden"),
}


def table(name: str) -> dict[str, object]:
    package, *_ = PLUG_POINTS[name]
    entries = getattr(importlib.import_module(f"agent_eval_action.{package}"), name)
    return dict(entries.builtin) if isinstance(entries, Registry) else entries


ENTRIES = [(name, key) for name in PLUG_POINTS for key in table(name)]


@pytest.mark.parametrize("name", PLUG_POINTS)
def test_a_plug_point_is_a_table_with_entries(name):
    entries = table(name)
    assert isinstance(entries, dict)
    assert entries
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", key) for key in entries)


@pytest.mark.parametrize(("name", "key"), ENTRIES)
def test_an_entry_is_documented(name, key):
    page = ROOT / PLUG_POINTS[name][1]
    assert f"`{key}`" in page.read_text(), f"{page.name} does not speak of {key}"


@pytest.mark.parametrize(("name", "key"), ENTRIES)
def test_an_entry_is_tested(name, key):
    folder = ROOT / PLUG_POINTS[name][2]
    texts = (p.read_text() for p in folder.rglob("*.py") if p.name != Path(__file__).name)
    assert any(re.search(rf"\b{key}\b", text) for text in texts), f"no test in {folder} names {key}"


@pytest.mark.parametrize("key", table("FORMATS"))
def test_a_format_has_samples(key):
    samples = ROOT / "tests" / "formats" / "samples" / key
    assert list(samples.glob("*.expected.json")), samples
    assert list(samples.glob("*.error.txt")), samples


def test_a_criterion_is_registered_by_its_own_name():
    assert [CRITERIA[name].name for name in CRITERIA.builtin] == [*CRITERIA.builtin]


def test_the_setting_and_the_results_name_the_stores_there_are():
    assert set(get_args(StoreKind)) == set(STORES)
    setting = BaselineSettings.model_fields["store"].annotation
    assert set(get_args(setting)) == {"auto", *STORES}


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_every_store_says_how_a_baseline_begins_with_it(store):
    assert store.begin.count("`") % 2 == 0
    assert re.match(r"[a-z`]", store.begin)
    assert not store.begin.endswith(".")


def test_every_driver_says_which_options_it_needs_and_takes():
    """Without its entry a driver runs, and options that are missing or mean nothing are passed over."""
    assert DRIVER_OPTIONS.keys() == table("AGENTS").keys()
    named = {name for needs, _, others in DRIVER_OPTIONS.values() for name in (*needs, *others)}
    assert named <= AgentSettings.model_fields.keys()
