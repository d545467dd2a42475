"""Run by google-adk: an eval set written by each of its stores. Arguments: the folder of agents, the bucket."""

import sys

from google.adk.evaluation.eval_case import EvalCase
from google.adk.evaluation.gcs_eval_sets_manager import GcsEvalSetsManager
from google.adk.evaluation.local_eval_sets_manager import LocalEvalSetsManager

TURN = {"user_content": {"role": "user", "parts": [{"text": "hi"}]}}

agents, bucket = sys.argv[1:]
for manager, name in (
    (LocalEvalSetsManager(agents_dir=agents), "on_disk"),
    (GcsEvalSetsManager(bucket_name=bucket, project="p"), "in_bucket"),
):
    manager.create_eval_set("bot", name)
    manager.add_eval_case("bot", name, EvalCase(eval_id=f"case_{name}", conversation=[TURN]))
