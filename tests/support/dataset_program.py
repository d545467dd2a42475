"""An extension of agents-cli that answers a dataset as its messages say: standard library only."""

import argparse
import json
import pathlib
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", required=True)
parser.add_argument("--output", required=True)
files = parser.parse_args()
assert pathlib.Path(files.dataset).is_absolute()
dataset = json.loads(pathlib.Path(files.dataset).read_text())
with pathlib.Path("datasets.jsonl").open("a") as log:
    log.write(json.dumps(dataset) + "\n")
answered, said_of = [], ""
for case in dataset["eval_cases"]:
    data = case.pop("agent_data", None) or {"turns": [{"turn_index": 0, "events": []}]}
    events = data["turns"][-1]["events"]
    if "prompt" in case:
        events.append({"author": "user", "content": case.pop("prompt")})
    said_of = said = events[-1]["content"]["parts"][0]["text"]
    if said == "drop":
        continue
    if said == "tools":
        call = {"name": "add", "args": {"a": 1}, "id": "x"}
        events.append({"author": "adder", "content": {"role": "model", "parts": [{"function_call": call}]}})
        result = {"name": "add", "id": "x", "response": {"sum": 2}}
        events.append({"author": "adder", "content": {"role": "user", "parts": [{"function_response": result}]}})
    if said == "exit":
        sys.stderr.write("the reason\n")
        sys.exit(3)
    if said == "hang":
        time.sleep(600)
    if said == "conversation":
        said = json.dumps([event.get("content") for event in events])
    if said == "silent":
        answered.append({**case, "agent_data": data})
        continue
    if said == "other":
        events[-1]["content"]["parts"][0]["text"] = "another message"
    if said == "nested":
        args = {}
        for _ in range(400):
            args = {"a": [args]}
        call = {"name": "add", "args": args, "id": "x"}
        events.append({"author": "bot", "content": {"role": "model", "parts": [{"function_call": call}]}})
    if said == "surrogate":
        said = "\ud800\0"
    events.append({"author": "bot", "content": {"role": "model", "parts": [{"text": "heard " + said}]}})
    answered.append({**case, "agent_data": data})
output = pathlib.Path(files.output)
if said_of == "nothing":
    sys.exit(0)
if said_of == "link":
    output.symlink_to("/etc/hostname")
elif said_of == "garbage":
    output.write_text("no json")
elif said_of == "list":
    output.write_text("[1]")
elif said_of == "twice":
    output.write_text(json.dumps({"eval_cases": answered * 2}))
elif said_of == "deep":
    output.write_text("[" * 100000)
else:
    output.write_text(json.dumps({"eval_cases": answered}))
