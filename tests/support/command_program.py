"""The agent that does what it is told, as a program that answers lines: standard library only."""

import json
import sys
import time

for line in sys.stdin:
    asked = json.loads(line)
    name, _, given = asked["user_text"].partition(" ")
    usage = {"input_tokens": 5, "total_tokens": 7}
    answer = {"author": "wild", "state": asked["state"], "model": "obedient-1", "usage": usage}
    if name == "say":
        answer["text"] = given
    elif name == "conversation":
        answer["text"] = json.dumps([message["content"] for message in asked["messages"]])
    elif name == "recall":
        answer["text"] = json.dumps(asked["state"])
    elif name == "add":
        args = json.loads(given)
        result = {"sum": args["a"] + args["b"]}
        answer["text"] = json.dumps(result)
        answer["tool_calls"] = [{"name": "add", "args": args, "result": result}]
    elif name == "hang":
        time.sleep(json.loads(given)["seconds"])
    else:
        kinds = {"rate_limit": "rate_limited", "unavailable": "unavailable"}
        answer = {"error": {"message": given or name, "kind": kinds.get(name)}}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
