"""Find and import the agent as ``adk eval`` and ``adk web`` do, or explain what the folder has instead."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_eval_worker_errors import WorkerError

MIN_ADK = (1, 10)
DIST_INFO = ".dist-info"


class LoadedAgent:
    """An agent or App that is ready to run, with its functions for reset and cleanup."""

    def __init__(self, agent: Any, module: Any = None, cleanup: Any = None) -> None:
        is_app = _is_app(agent)
        self.app = agent if is_app else None
        self.agent = agent.root_agent if is_app else agent
        self.cleanup = cleanup
        reset = getattr(module, "reset_data", None)
        self.reset = reset if callable(reset) else None


def require_adk() -> str:
    """Return the version of google-adk; raises WorkerError if it is missing or too old."""
    try:
        from google.adk import version
    except ImportError as error:
        if (error.name or "") not in ("google", "google.adk"):
            raise
        raise WorkerError("environment", f"google-adk is not installed in {sys.executable}") from None
    found: str = version.__version__
    if tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < MIN_ADK:
        raise WorkerError("environment", f"google-adk {found} is too old: 1.10 or newer is needed")
    return found


def load_dotenv(folder: Path, workspace: Path) -> None:
    """Load the nearest .env, from the folder up to the workspace; variables that are set already stay."""
    if os.environ.get("ADK_DISABLE_LOAD_DOTENV", "").lower() in ("1", "true"):
        return
    for place in (folder, *folder.parents):
        if (place / ".env").is_file():
            import dotenv

            dotenv.load_dotenv(place / ".env", override=False)
            return
        if place == workspace:
            return


async def load(folder: Path) -> LoadedAgent:
    """Import the agent folder. Raises what the import raises, or WorkerError if there is no agent in it."""
    is_python = any((folder / name).is_file() for name in ("agent.py", "__init__.py", "agent/__init__.py"))
    if not is_python and (folder / "root_agent.yaml").is_file():
        from google.adk.agents import config_agent_utils

        return LoadedAgent(config_agent_utils.from_config(str(folder / "root_agent.yaml")))
    modules = _import(folder)
    for name, is_kind in (("app", _is_app), ("root_agent", _is_agent)):
        for module in modules:
            if is_kind(found := getattr(module, name, None)):
                return LoadedAgent(found, module)
    for module in modules:
        if callable(getattr(module, "get_agent_async", None)):
            found = await module.get_agent_async()
            agent, cleanup = found if isinstance(found, tuple) else (found, None)
            if not _is_app(agent) and not _is_agent(agent):
                raise WorkerError("import", f"`get_agent_async` returned {type(agent).__name__}, not an agent")
            return LoadedAgent(agent, module, cleanup)
    raise WorkerError("import", _describe_modules(modules))


async def load_module(name: str, sub_agent: str) -> LoadedAgent:
    """Import an agent by its module's name and select the one that answers; errors are ADK's AgentEvaluator's."""
    module = importlib.import_module(name)
    if not (hasattr(module, "agent") or name.endswith(".agent")):
        raise ValueError(f"Module {name} does not have a member named `agent` or the name should endwith `.agent`.")
    inner = getattr(module, "agent", module)
    root, cleanup = getattr(inner, "root_agent", None), None
    if root is None:
        factory = getattr(inner, "get_agent_async", None)
        if not callable(factory):
            raise ValueError(f"Module {name} does not have a root_agent or get_agent_async method.")
        root, cleanup = await factory()
    chosen = root.find_agent(sub_agent) if sub_agent else root
    if chosen is None:
        raise ValueError(f"Sub-Agent {sub_agent!r} not found.")
    loaded = LoadedAgent(chosen, cleanup=cleanup)
    app = getattr(inner, "app", None)
    loaded.app = app if _is_app(app) else None
    return loaded


def _import(folder: Path) -> list[ModuleType]:
    """Return the modules to search: ``folder.agent`` if there is one, then the folder's package."""
    if "." in folder.name:
        return _import_from_path(folder)
    try:
        package = importlib.import_module(folder.name)
        if any(Path(place).resolve() == folder for place in getattr(package, "__path__", [])):
            return _with_agent_module(package)
    except ImportError as error:
        if "beyond top-level package" not in str(error):
            raise
        return _import_dotted(folder)
    # A module that was imported earlier has the folder's name (``types``, say).
    return _import_from_path(folder)


def _import_dotted(folder: Path) -> list[ModuleType]:
    """Import for ``from ..x import y``: the folder is part of a larger package, and imported from its root."""
    # Parents without __init__.py are packages too; one level is as far as such an import usually goes.
    top = folder.parent.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    for name in [name for name in sys.modules if name == folder.name or name.startswith(folder.name + ".")]:
        del sys.modules[name]
    sys.path.insert(0, str(top))
    return _with_agent_module(importlib.import_module(".".join(folder.relative_to(top).parts)))


def _import_from_path(folder: Path) -> list[ModuleType]:
    """Import as ``adk eval`` does: the folder becomes the package ``agent``."""
    init = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location("agent", init, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None or not init.is_file():
        raise WorkerError("import", "the folder's name cannot be imported, and it has no __init__.py to import it by")
    package = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = package
    spec.loader.exec_module(package)
    return _with_agent_module(package)


def _with_agent_module(package: ModuleType) -> list[ModuleType]:
    name = package.__name__ + ".agent"
    inner = getattr(package, "agent", None)
    if importlib.util.find_spec(name) is not None:
        inner = importlib.import_module(name)
    return [inner, package] if inspect.ismodule(inner) else [package]


def _is_app(value: Any) -> bool:
    module = sys.modules.get("google.adk.apps.app")
    return module is not None and isinstance(value, module.App)


def _is_agent(value: Any) -> bool:
    from google.adk.agents.base_agent import BaseAgent

    # google-adk 2.x runs workflow nodes too, of which agents are one kind.
    node = getattr(sys.modules.get("google.adk.workflow"), "BaseNode", BaseAgent)
    return isinstance(value, (BaseAgent, node))


def _describe_modules(modules: list[ModuleType]) -> str:
    found = {
        name: value for module in reversed(modules) for name, value in vars(module).items() if not name.startswith("_")
    }
    where = " and ".join(f"`{module.__name__}`" for module in modules)
    text = f"{where} has no `app`, `root_agent` or `get_agent_async`"
    for name in ("root_agent", "app"):
        if name in found:
            return f"{text} that is an agent: `{name}` is a {type(found[name]).__name__}"
    agents = sorted(name for name, value in found.items() if _is_agent(value))
    if agents:
        return f"{text}; there is an agent named `{agents[0]}`: call it `root_agent`"
    return f"{text}; it has {', '.join(sorted(found)[:20]) or 'nothing'}"


def models_of(root: Any) -> list[str]:
    """Return the model names of the agent, its sub-agents, and agents used as tools."""
    names, seen = set(), set()
    todo = [root]
    while todo:
        agent = todo.pop()
        if agent is None or id(agent) in seen:
            continue
        seen.add(id(agent))
        model = getattr(agent, "model", None)
        name = model if isinstance(model, str) else getattr(model, "model", None)
        if isinstance(name, str) and name:
            names.add(name)
        todo.extend(getattr(agent, "sub_agents", None) or [])
        tools = getattr(agent, "tools", None)
        todo.extend(getattr(tool, "agent", None) for tool in (tools if isinstance(tools, list) else []))
    return sorted(names)


def installed() -> list[str]:
    """Return the sorted ``name-version`` of all dist-info folders: reading their files takes far longer."""
    folders = {path for place in sys.path if (path := Path(place or ".")).is_dir()}
    return sorted({entry.name[: -len(DIST_INFO)] for folder in folders for entry in folder.glob("*" + DIST_INFO)})
