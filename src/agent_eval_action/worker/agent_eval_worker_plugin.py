"""The plugin that is first in ADK's list: keeps what the model got, times models and tools, writes no state."""

import time


def union_seconds(intervals):
    """Seconds covered by (start, end) pairs, overlap counted once."""
    total, counted_to = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > counted_to:
            total += end - max(start, counted_to)
            counted_to = end
    return total


class TurnRecord:
    """What one turn's callbacks saw."""

    def __init__(self):
        self.details = {}
        self.requests = {}
        self.model = []
        self.tool = []
        self.open_model = {}
        self.open_tool = {}
        self.model_calls = 0

    def durations(self):
        """Seconds (model, tool): a tool's time without the model calls made inside it."""
        model = union_seconds(self.model)
        return model, union_seconds(self.model + self.tool) - model

    def doing(self):
        """What is under way, for the message of a turn that took too long."""
        now = time.monotonic()
        tools = ["tool `%s` for %.1f s" % (name, now - start) for start, name in self.open_tool.values()]
        models = ["the model of `%s` for %.1f s" % (name, now - s[-1]) for name, s in self.open_model.items() if s]
        return ", ".join(tools or models)


def make_plugin_class():
    """The class, made once google-adk is importable."""
    from google.adk.plugins.base_plugin import BasePlugin

    class RecorderPlugin(BasePlugin):
        """One per session: its record is that of the turn being made."""

        def __init__(self, retry_options):
            super().__init__(name="agent_eval_recorder")
            self.record = TurnRecord()
            self._retry_options = retry_options

        async def before_model_callback(self, *, callback_context, llm_request):
            name = callback_context.agent_name
            if name not in self.record.details:
                self.record.requests[name] = llm_request
            self.record.open_model.setdefault(name, []).append(time.monotonic())
            self._set_retries(callback_context, llm_request)

        async def after_model_callback(self, *, callback_context, llm_response):
            record, name = self.record, callback_context.agent_name
            # Read now, not before: later callbacks change the request on its way to the model.
            request = record.requests.pop(name, None)
            if request is not None:
                record.details[name] = details_of(request)
            if not llm_response.partial:
                _close(record.open_model.get(name), record.model)
                record.model_calls += 1

        async def on_model_error_callback(self, *, callback_context, llm_request, error):
            _close(self.record.open_model.get(callback_context.agent_name), self.record.model)

        async def before_tool_callback(self, *, tool, tool_args, tool_context):
            self.record.open_tool[id(tool_context)] = (time.monotonic(), tool.name)

        async def after_tool_callback(self, *, tool, tool_args, tool_context, result):
            self._close_tool(tool_context)

        async def on_tool_error_callback(self, *, tool, tool_args, tool_context, error):
            self._close_tool(tool_context)

        def _close_tool(self, tool_context):
            opened = self.record.open_tool.pop(id(tool_context), None)
            if opened:
                self.record.tool.append((opened[0], time.monotonic()))

        def _set_retries(self, callback_context, llm_request):
            if self._retry_options is None or _has_own_retries(callback_context):
                return
            from google.genai import types

            config = llm_request.config = llm_request.config or types.GenerateContentConfig()
            config.http_options = config.http_options or types.HttpOptions()
            config.http_options.retry_options = config.http_options.retry_options or self._retry_options

    return RecorderPlugin


def make_retry_options(timeout_s):
    """ADK's retries in an evaluation (7 attempts, 5 s doubling to 120 s), as many as fit in half a turn's time.

    Waiting longer would turn every rate limit into a timeout, which nobody retries.
    """
    from google.genai import types

    if not hasattr(types, "HttpRetryOptions"):
        return None
    attempts, waited, delay = 1, 0.0, 5.0
    while attempts < 7 and waited + delay <= timeout_s / 2:
        attempts, waited, delay = attempts + 1, waited + delay, min(delay * 2, 120.0)
    return types.HttpRetryOptions(
        attempts=attempts,
        initial_delay=5.0,
        max_delay=120.0,
        exp_base=2.0,
        http_status_codes=[408, 429, 500, 502, 503, 504],
    )


def details_of(request):
    """Instructions and tool declarations of a model request, as JSON types."""
    config = getattr(request, "config", None)
    tools = []
    for tool in getattr(config, "tools", None) or []:
        if hasattr(tool, "model_dump"):
            tools.append(tool.model_dump(mode="json", exclude_none=True))
        else:
            tools.append({"name": getattr(tool, "__name__", type(tool).__name__)})
    return {"instructions": _text(getattr(config, "system_instruction", None)), "tools": tools}


def _text(instruction):
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    if isinstance(instruction, (list, tuple)):
        return "\n".join(filter(None, map(_text, instruction)))
    if getattr(instruction, "parts", None):
        return "\n".join(filter(None, map(_text, instruction.parts)))
    return getattr(instruction, "text", None) or ""


def _close(starts, intervals):
    if starts:
        intervals.append((starts.pop(), time.monotonic()))


def _has_own_retries(callback_context):
    context = getattr(callback_context, "_invocation_context", None)
    try:
        model = context.agent.canonical_model
    except Exception:  # noqa: BLE001 - agents of other kinds have no model
        return False
    return getattr(model, "retry_options", None) is not None
