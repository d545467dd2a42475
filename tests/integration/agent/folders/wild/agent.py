"""An agent that does to its process what the user asks for: ``tool_name json-arguments``."""

import asyncio
import ctypes
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings

from google.adk.agents import Agent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import errors, types


class Obedient(BaseLlm):
    """Calls the tool the user names, then says what it answered. Rule-based: no model is asked."""

    async def generate_content_async(self, llm_request, stream=False):
        await asyncio.sleep(0)
        parts = llm_request.contents[-1].parts
        done = [part.function_response for part in parts if part.function_response]
        if done:
            try:
                yield _say(json.dumps(done[0].response))
            except (TypeError, ValueError):
                yield _say("that cannot be said")
            return
        name, _, arguments = (parts[0].text or "").partition(" ")
        if name == "say":
            yield _say(arguments)
        elif name == "retries":
            options = llm_request.config.http_options.retry_options
            yield _say(json.dumps([options.attempts, options.initial_delay, options.http_status_codes]))
        elif name == "conversation":
            yield _say(json.dumps([content.model_dump(exclude_none=True) for content in llm_request.contents]))
        elif name == "silence":
            return
        elif name == "rate_limit":
            raise errors.ClientError(429, {"error": {"message": "slow down", "details": [{"retryDelay": "17s"}]}})
        elif name == "unavailable":
            raise errors.ServerError(503, {"error": {"message": "overloaded"}})
        else:
            call = types.FunctionCall(name=name, args=json.loads(arguments or "{}"))
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))


def _say(text):
    return LlmResponse(
        content=types.Content(role="model", parts=[types.Part(text=text)]),
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=5, total_token_count=7),
        **({"model_version": "obedient-1"} if "model_version" in LlmResponse.model_fields else {}),
    )


def add(a: int, b: int) -> dict:
    """Adds."""
    return {"sum": a + b}


def fail(text: str) -> dict:
    """Raises."""
    raise ValueError(text)


async def hang(seconds: float) -> dict:
    """Waits."""
    await asyncio.sleep(seconds)
    return {"slept": seconds}


async def hang_on(seconds: float) -> dict:
    """Waits, and will not be cancelled."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return {}


def block(seconds: float, until: str = "") -> dict:
    """Blocks the event loop, until a file is there where one is named."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not (until and os.path.exists(until)):
        time.sleep(min(left, 0.05) if until else left)
    return {"blocked": seconds}


def hold_the_lock(seconds: int) -> dict:
    """Blocks every thread: a C call that keeps the interpreter's lock."""
    ctypes.PyDLL(None).sleep(ctypes.c_uint(seconds))
    return {}


def kill() -> dict:
    """SIGKILL to itself."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def segfault() -> dict:
    """Reads address zero."""
    ctypes.string_at(0)
    return {}


def leave(code: int) -> dict:
    """sys.exit in a tool."""
    sys.exit(code)


def leave_at_once(code: int) -> dict:
    """os._exit in a tool."""
    print("last words")
    os._exit(code)


def print_much(megabytes: int) -> dict:
    """Prints."""
    line = "x" * 1023
    for _ in range(megabytes):
        print("\n".join([line] * 1024))
    return {"printed": megabytes}


def answer_much(megabytes: int) -> dict:
    """A long answer."""
    return {"text": "y" * (megabytes << 20)}


def leave_children() -> dict:
    """Children that outlive the tool: a plain one, one in a session of its own, one that holds our pipes."""
    plain = subprocess.Popen(["sleep", "600"])
    apart = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forked = os.fork()
    if forked == 0:
        time.sleep(600)
        os._exit(0)
    for one in (plain, apart):
        one.returncode = 0  # nobody waits for them
    return {"pids": [plain.pid, apart.pid, forked]}


def close_descriptors(low: int, high: int) -> dict:
    """Closes what it has not opened."""
    os.closerange(low, high)
    return {"closed": True}


def scribble() -> dict:
    """Writes garbage to every descriptor that takes it."""
    for fd in range(3, 1024):
        try:
            os.write(fd, b"garbage garbage garbage ")
        except OSError:
            continue
    return {}


def move() -> dict:
    """Changes the working directory."""
    before = os.getcwd()
    os.chdir("/")
    return {"was": before}


def odd_values() -> dict:
    """Values JSON does not know."""
    loop = {
        "n": float("nan"),
        "i": float("inf"),
        "b": b"\xff",
        "s": "\ud800 \x00",
        "set": {1},
        "o": object,
        "big": 10**5000,
    }
    loop["self"] = loop
    return loop


def remember(tool_context, value: str) -> dict:
    """Writes session state of every scope, and an object."""
    for scope in ("", "user:", "app:"):
        tool_context.state[scope + "note"] = value
    tool_context.state["object"] = {"when": {1, 2}}
    return {}


def recall(tool_context) -> dict:
    """Reads the state."""
    return {key: tool_context.state.get(key) for key in ("note", "user:note", "app:note", "given")}


def rude_setup() -> dict:
    """Takes the signal handlers, and runs a loop of its own in a thread."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    thread = threading.Thread(target=lambda: asyncio.run(asyncio.sleep(0)))
    thread.start()
    thread.join()
    try:
        os.setsid()
    except PermissionError:
        pass
    asyncio.get_event_loop().stop()
    return {"done": True}


def cancel_everybody() -> dict:
    """Cancels all tasks but its own."""
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
    return {}


def forked_sees() -> dict:
    """How many of our pipes a forked child has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        found = 0
        for fd in range(200, 300):
            try:
                found += stat.S_ISFIFO(os.fstat(fd).st_mode)
            except OSError:
                pass
        os._exit(found)
    return {"pipes": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}


def who() -> dict:
    """Which process, and whose child it is."""
    return {"pid": os.getpid(), "parent": os.getppid()}


def see_environment() -> dict:
    """What it can see."""
    return {"names": sorted(os.environ), "cwd": os.getcwd(), "argv": sys.argv, "path": sys.path[:3]}


TOOLS = [
    add, fail, hang, hang_on, block, hold_the_lock, kill, segfault, leave, leave_at_once, print_much, answer_much,
    leave_children, close_descriptors, scribble, move, odd_values, remember, recall, rude_setup, cancel_everybody,
    see_environment, who, forked_sees,
]  # fmt: skip

root_agent = Agent(name="wild", model=Obedient(model="obedient"), instruction="Do as you are told.", tools=TOOLS)
