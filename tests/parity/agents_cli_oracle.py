"""Run by agents-cli's interpreter: its own loaders and metric handlers, one JSON request per line."""

import json
import sys
import types as python_types

from agentplatform import types
from agentplatform._genai import _evals_constant, _evals_metric_handlers, _transformers
from google.agents.cli.eval import _events, cmd_generate, eval_utils


def load(request):
    """Whether the dataset is read, and what is sent of each case: history and message, or its error."""
    dataset = types.EvaluationDataset.model_validate_json(request["text"])
    found = []
    for case in dataset.eval_cases or []:
        _events.rewrite_model_author_events(case, "root")
        try:
            history, message = cmd_generate.split_case_history(case)
        except ValueError as error:
            found.append({"error": str(error)})
            continue
        found.append(
            {
                "history": [event.model_dump(mode="json", exclude_none=True) for event in history],
                "message": message.model_dump(mode="json", exclude_none=True),
            }
        )
    return found


def instance(request):
    """What a local function of the config gets for a case and the events that the agent made."""
    case = types.EvaluationDataset.model_validate_json(request["text"]).eval_cases[0]
    events = [types.evals.AgentEvent.model_validate(event) for event in request["events"]]
    case = cmd_generate.merge_events_into_case(case, events, agents_map={})
    seen = []
    metric = types.Metric(name="m", custom_function=lambda given: seen.append(given) or 1.0)
    handler = _evals_metric_handlers.CustomMetricHandler(module=None, metric=metric)
    result = handler.get_metric_result(case, 0)
    return {"instance": seen[0] if seen else None, "error": result.error_message}


def managed(request):
    """The request to Vertex AI for a metric of the config."""
    case = types.EvaluationDataset.model_validate_json(request["text"]).eval_cases[0]
    events = [types.evals.AgentEvent.model_validate(event) for event in request["events"]]
    case = cmd_generate.merge_events_into_case(case, events, agents_map={})
    metric = types.Metric(name=request["metric"], metric_spec_parameters=request.get("parameters"))
    handler = _evals_metric_handlers.PredefinedMetricHandler(module=None, metric=metric)
    payload = handler._build_request_payload(case, 0)
    return {
        "metrics": _transformers.t_metrics([metric]),
        "instance": payload["instance"].model_dump(mode="json", exclude_none=True),
    }


def config(request):
    """The metrics of a config file, or the error that refuses it."""
    try:
        metrics, local, remote = eval_utils.prepare_eval_metrics(
            config_path=request["path"],
            metrics_str=None,
            default_config_path=None,
            console=python_types.SimpleNamespace(print=lambda *_, **__: None),
        )
    except Exception as error:  # noqa: BLE001 - click's, and whatever else it raises
        return {"error": str(error)}
    return {"names": [getattr(metric, "name", metric) for metric in metrics], "functions": local + remote}


def predefined(_):
    return {"names": sorted(_evals_constant.SUPPORTED_PREDEFINED_METRICS)}


def transient(request):
    """Whether agents-cli tries again after this error."""
    error = {"connection": ConnectionError(), "timeout": TimeoutError(), "value": ValueError()}[request["error"]]
    if "code" in request:
        error.code = request["code"]
    if request.get("wrapped"):
        outer = RuntimeError("outer")
        outer.__context__ = error
        error = outer
    return eval_utils._is_transient(error)


ACTIONS = {action.__name__: action for action in (load, instance, managed, config, predefined, transient)}

for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer = {"value": ACTIONS[asked.pop("action")](asked)}
    except Exception as error:  # noqa: BLE001 - its refusal is the answer
        answer = {"refused": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
