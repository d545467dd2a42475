"""Finds and imports the agent as ``adk eval`` and ``adk web`` do, and says what it found when it is not one."""

import importlib
import importlib.util
import inspect
import os
import sys


class NoAgentError(Exception):
    """The folder imports, and there is no agent in it."""


class Loaded:
    """An agent (or App) ready to run, and what goes with it."""

    def __init__(self, agent, app, module, cleanup=None):
        self.agent = agent
        self.app = app
        self.cleanup = cleanup
        reset = getattr(module, "reset_data", None)
        self.reset = reset if callable(reset) else None


def load_dotenv(folder, workspace):
    """The nearest .env from the folder up to the workspace; variables already set stay."""
    if os.environ.get("ADK_DISABLE_LOAD_DOTENV", "").lower() in ("1", "true"):
        return
    for place in _upwards(folder, workspace):
        path = os.path.join(place, ".env")
        if os.path.isfile(path):
            import dotenv

            dotenv.load_dotenv(path, override=False)
            return


async def load(folder):
    """Import the agent folder; raises what the import raises, or NoAgentError."""
    if not _is_python(folder) and os.path.isfile(os.path.join(folder, "root_agent.yaml")):
        return _load_yaml(folder)
    modules = _import(folder)
    for module in modules:
        app = getattr(module, "app", None)
        if _is_app(app):
            return Loaded(app.root_agent, app, module)
    for module in modules:
        agent = getattr(module, "root_agent", None)
        if _is_agent(agent):
            return Loaded(agent, None, module)
    for module in modules:
        if callable(getattr(module, "get_agent_async", None)):
            return await _load_async(module)
    raise NoAgentError(_what_was_found(folder, modules))


def _is_python(folder):
    return any(
        os.path.isfile(os.path.join(folder, *name))
        for name in (("agent.py",), ("__init__.py",), ("agent", "__init__.py"))
    )


def _load_yaml(folder):
    from google.adk.agents import config_agent_utils

    parent = os.path.dirname(folder)
    if parent not in sys.path:
        sys.path.insert(0, parent)
    return Loaded(config_agent_utils.from_config(os.path.join(folder, "root_agent.yaml")), None, None)


def _import(folder):
    """The modules to look in: ``folder.agent`` where there is one, then the folder's package itself."""
    name = os.path.basename(folder)
    if "." in name:
        return _import_from_path(folder)
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        if "beyond top-level package" not in str(error):
            raise
        return _import_dotted(folder)
    if not _lies_in(package, folder):
        # The name is taken by a module that was imported before (a folder called ``types``, say).
        return _import_from_path(folder)
    try:
        return _with_agent_module(package)
    except ImportError as error:
        if "beyond top-level package" not in str(error):
            raise
        return _import_dotted(folder)


def _import_dotted(folder):
    """``from ..x import y``: the folder is part of a larger package, imported from where that begins."""
    parts, top = [os.path.basename(folder)], os.path.dirname(folder)
    while os.path.isfile(os.path.join(top, "__init__.py")):
        parts.insert(0, os.path.basename(top))
        top = os.path.dirname(top)
    if len(parts) == 1:
        # The parents are folders without __init__.py: one level is as far as such an import usually goes.
        parts.insert(0, os.path.basename(top))
        top = os.path.dirname(top)
    for loaded in [m for m in sys.modules if m == parts[-1] or m.startswith(parts[-1] + ".")]:
        del sys.modules[loaded]
    sys.path.insert(0, top)
    return _with_agent_module(importlib.import_module(".".join(parts)))


def _import_from_path(folder):
    """As ``adk eval`` does it: the folder becomes the package ``agent``."""
    init = os.path.join(folder, "__init__.py")
    if not os.path.isfile(init):
        raise NoAgentError("the folder's name cannot be imported, and it has no __init__.py to import it by")
    spec = importlib.util.spec_from_file_location("agent", init, submodule_search_locations=[folder])
    package = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = package
    spec.loader.exec_module(package)
    return _with_agent_module(package)


def _with_agent_module(package):
    name = package.__name__ + ".agent"
    inner = getattr(package, "agent", None)
    if importlib.util.find_spec(name) is not None:
        inner = importlib.import_module(name)
    return [inner, package] if inspect.ismodule(inner) else [package]


def _lies_in(package, folder):
    places = list(getattr(package, "__path__", []) or [])
    return any(os.path.realpath(place) == os.path.realpath(folder) for place in places)


async def _load_async(module):
    found = await module.get_agent_async()
    agent, cleanup = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if _is_app(agent):
        return Loaded(agent.root_agent, agent, module, cleanup)
    if not _is_agent(agent):
        raise NoAgentError("`get_agent_async` returned %s, not an agent" % type(agent).__name__)
    return Loaded(agent, None, module, cleanup)


def _is_app(value):
    module = sys.modules.get("google.adk.apps.app")
    return module is not None and isinstance(value, module.App)


def _is_agent(value):
    from google.adk.agents.base_agent import BaseAgent

    # google-adk 2.x runs workflow nodes too, of which agents are one kind.
    node = getattr(sys.modules.get("google.adk.workflow"), "BaseNode", BaseAgent)
    return isinstance(value, (BaseAgent, node))


def _what_was_found(folder, modules):
    names = sorted({name for module in modules for name in vars(module) if not name.startswith("_")})
    agents = [n for n in names if any(_is_agent(getattr(m, n, None)) for m in modules)]
    where = " and ".join("`%s`" % module.__name__ for module in modules)
    text = "%s has no `app`, `root_agent` or `get_agent_async`" % where
    for name in ("root_agent", "app"):
        for module in modules:
            if hasattr(module, name):
                return text + " that is an agent: `%s` is a %s" % (name, type(getattr(module, name)).__name__)
    if agents:
        return text + "; there is an agent named `%s`: call it `root_agent`" % agents[0]
    return text + "; it has " + (", ".join(names[:20]) if names else "nothing")


def _upwards(folder, last):
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if folder == last or parent == folder:
            return
        folder = parent


def models_of(root):
    """Model names of the agent and all below it, sub-agents and agents used as tools."""
    names, todo, seen = set(), [root], set()
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


def installed():
    """What is installed, as sorted ``name-version`` of the dist-info folders: reading them all costs a tenth of a second."""
    found = set()
    for place in sys.path:
        try:
            entries = os.listdir(place or ".")
        except OSError:
            continue
        found.update(entry[: -len(".dist-info")] for entry in entries if entry.endswith(".dist-info"))
    return sorted(found)
