"""The fields google-genai's Content, grounding and usage types take (google-genai 2.34): names and kinds.

Importing google-genai to ask it would cost most of a second per start. A test holds this table to the
installed one. ``[X]`` is a list of X, ``object`` a free JSON object, ``'X`` the literal string X.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import ErrorDetails

from agent_eval_action.diagnostics.reader import JsonPath, closest, did_you_mean, shorten
from agent_eval_action.formats.base import Findings
from agent_eval_action.results import evalset as m
from agent_eval_action.results.evalset import Content, FunctionCall, FunctionResponse, Part, Persona, PersonaBehavior

_TABLE = """
Blob = data:bytes display_name:str mime_type:str
CodeExecutionResult = id:str outcome:enum output:str
Content = parts:[Part] role:str
ExecutableCode = code:str id:str language:enum
FileData = display_name:str file_uri:str mime_type:str
FunctionCall = args:object id:str name:str partial_args:[PartialArg] will_continue:bool
FunctionResponse = id:str name:str parts:[FunctionResponsePart] response:object scheduling:enum will_continue:bool
FunctionResponseBlob = data:bytes display_name:str mime_type:str
FunctionResponseFileData = display_name:str file_uri:str mime_type:str
FunctionResponsePart = file_data:FunctionResponseFileData inline_data:FunctionResponseBlob media_processing:enum
GenerateContentResponseUsageMetadata = cache_tokens_details:[ModalityTokenCount] cached_content_token_count:int
    candidates_token_count:int candidates_tokens_details:[ModalityTokenCount] prompt_token_count:int
    prompt_tokens_details:[ModalityTokenCount] thoughts_token_count:int tool_use_prompt_token_count:int
    tool_use_prompt_tokens_details:[ModalityTokenCount] total_token_count:int traffic_type:enum
GroundingChunk = image:GroundingChunkImage maps:GroundingChunkMaps retrieved_context:GroundingChunkRetrievedContext
    web:GroundingChunkWeb
GroundingChunkCustomMetadata = key:str numeric_value:float string_list_value:GroundingChunkStringList string_value:str
GroundingChunkImage = domain:str image_uri:str source_uri:str title:str
GroundingChunkMaps = place_answer_sources:GroundingChunkMapsPlaceAnswerSources place_id:str
    route:GroundingChunkMapsRoute text:str title:str uri:str
GroundingChunkMapsPlaceAnswerSources = flag_content_uri:str
    review_snippet:[GroundingChunkMapsPlaceAnswerSourcesReviewSnippet]
    review_snippets:[GroundingChunkMapsPlaceAnswerSourcesReviewSnippet]
GroundingChunkMapsPlaceAnswerSourcesAuthorAttribution = display_name:str photo_uri:str uri:str
GroundingChunkMapsPlaceAnswerSourcesReviewSnippet =
    author_attribution:GroundingChunkMapsPlaceAnswerSourcesAuthorAttribution flag_content_uri:str google_maps_uri:str
    relative_publish_time_description:str review:str review_id:str title:str
GroundingChunkMapsRoute = distance_meters:int duration:str encoded_polyline:str
GroundingChunkRetrievedContext = custom_metadata:[GroundingChunkCustomMetadata] document_name:str
    file_search_store:str media_id:str page_number:int rag_chunk:RagChunk text:str title:str uri:str
GroundingChunkStringList = values:[str]
GroundingChunkWeb = domain:str title:str uri:str
GroundingMetadata = google_maps_widget_context_token:str grounding_chunks:[GroundingChunk]
    grounding_supports:[GroundingSupport] image_search_queries:[str] retrieval_metadata:RetrievalMetadata
    retrieval_queries:[str] search_entry_point:SearchEntryPoint
    source_flagging_uris:[GroundingMetadataSourceFlaggingUri] web_search_queries:[str]
GroundingMetadataSourceFlaggingUri = flag_content_uri:str source_id:str
GroundingSupport = confidence_scores:[float] grounding_chunk_indices:[int] rendered_parts:[int] segment:Segment
ModalityTokenCount = modality:enum token_count:int
Part = audio_transcription:Transcription code_execution_result:CodeExecutionResult executable_code:ExecutableCode
    file_data:FileData function_call:FunctionCall function_response:FunctionResponse inline_data:Blob
    media_processing:enum media_resolution:PartMediaResolution part_metadata:object speech_metadata:SpeechMetadata
    text:str thought:bool thought_signature:bytes tool_call:ToolCall tool_response:ToolResponse
    video_metadata:VideoMetadata
PartMediaResolution = level:enum num_tokens:int
PartialArg = bool_value:bool json_path:str null_value:'NULL_VALUE number_value:float string_value:str
    will_continue:bool
RagChunk = chunk_id:str file_id:str page_span:RagChunkPageSpan text:str
RagChunkPageSpan = first_page:int last_page:int
RetrievalMetadata = google_search_dynamic_retrieval_score:float
SearchEntryPoint = rendered_content:str sdk_blob:bytes
Segment = end_index:int part_index:int start_index:int text:str
SpeechMetadata = speaker:str style:str
ToolCall = args:object id:str tool_type:enum
ToolResponse = id:str response:object tool_type:enum
Transcription = end_offset:str finished:bool language_code:str speaker_label:str start_offset:str text:str
    words:[WordInfo]
VideoMetadata = end_offset:str fps:float start_offset:str
WordInfo = end_offset:str start_offset:str word:str
"""


def _read_table() -> dict[str, dict[str, str]]:
    types: dict[str, dict[str, str]] = {}
    name = ""
    for word in _TABLE.replace(" =", "=").split():
        if word.endswith("="):
            name = word[:-1]
            types[name] = {}
        else:
            field, kind = word.split(":", 1)
            types[name][field] = kind
    return types


FIELDS: Final[dict[str, dict[str, str]]] = _read_table()
"""Type name to field name (snake_case) to kind."""

SPELLINGS: Final[dict[str, dict[str, str]]] = {
    name: {spelling: field for field in fields for spelling in (field, to_camel(field))}
    for name, fields in FIELDS.items()
}
"""Type name to every accepted spelling of a field to its snake_case name."""


_PARTS = 'write `"parts": [{"text": "..."}]`'

KNOWN_CONFUSIONS: Final[dict[str, str]] = {
    "expected_tool_use": 'write `"intermediate_data": {"tool_uses": [{"name": ..., "args": ...}]}`',
    "expected_intermediate_agent_responses": 'write `"intermediate_data": {"intermediate_responses": [...]}`',
    "query": 'write `"user_content": {"parts": [{"text": "..."}]}`',
    "reference": 'write `"final_response": {"parts": [{"text": "..."}]}`',
    "tool_name": "the key is `name`",
    "tool_input": "the key is `args`",
    "arguments": "the key is `args`",
    "parameters": "the key is `args`",
    "content": _PARTS,
    "text": _PARTS,
    "tools": 'write `"intermediate_data": {"tool_uses": [{"name": ..., "args": ...}]}`',
}


def missing_key_hint(key: str, present: Iterable[str]) -> str | None:
    """For a missing key: the one beside it that looks like it."""
    found = closest(key, present)
    return f"is it meant by `{found}`?" if found else None


def unknown_key_hint(key: str, known: Iterable[str]) -> str | None:
    """A near name wins; else a name other schemas use for the same thing."""
    return did_you_mean(key, known) or KNOWN_CONFUSIONS.get(key)


_M = TypeVar("_M", bound=BaseModel)

# Key (snake_case) of a value, or of the list it is in, to the models it may be.
_MODELS: Final[dict[str, tuple[type[BaseModel], ...]]] = {
    "eval_cases": (m.EvalCase,),
    "conversation": (m.Invocation,),
    "user_content": (m.Content,),
    "final_response": (m.Content,),
    "content": (m.Content,),
    "parts": (m.Part,),
    "function_call": (m.FunctionCall,),
    "function_response": (m.FunctionResponse,),
    "intermediate_data": (m.IntermediateData, m.InvocationEvents),
    "tool_uses": (m.FunctionCall,),
    "tool_responses": (m.FunctionResponse,),
    "invocation_events": (m.InvocationEvent,),
    "rubrics": (m.Rubric,),
    "rubric_content": (m.RubricContent,),
    "app_details": (m.AppDetails,),
    "session_input": (m.SessionInput,),
    "conversation_scenario": (m.ConversationScenario,),
    "scenarios": (m.ConversationScenario,),
    "user_persona": (Persona,),
    "behaviors": (PersonaBehavior,),
}

_WANTED: Final[dict[str, str]] = {
    "string_type": "a string",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "float_type": "a number",
    "float_parsing": "a number",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "tuple_type": "a list",
    "list_type": "a list",
}


def validate(model: type[_M], value: Any, text: str | None, findings: Findings) -> _M | None:
    """The value as a model, or None and every error in ``findings``.

    ``text`` is the value's JSON where it is at hand. JSON, because ADK validates JSON: pydantic converts
    a little differently from Python objects. ``null`` where a value with a default is wanted is absent.
    """
    try:
        return model.model_validate_json(text if text is not None else json.dumps(value))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
    nulls = [path for one in errors if (path := _needless_null(one, value))]
    if nulls:
        for path in nulls:
            _parent(value, path).pop(path[-1])
        return validate(model, value, None, findings)
    for one in errors:
        _report(one, value, findings)
    return None


def owner(at: JsonPath) -> tuple[type[BaseModel], ...]:
    """The models the object at a path may be."""
    keys = [to_snake(step) for step in at if isinstance(step, str)]
    if keys[-2:-1] == ["agent_details"]:
        return (m.AgentDetails,)
    return _MODELS.get(keys[-1], ()) if keys else (m.EvalSet,)


def _report(error: ErrorDetails, value: Any, findings: Findings) -> None:
    at = place(value, error["loc"])
    kind, key = error["type"], str(error["loc"][-1] if error["loc"] else "")
    holder = at[:-1] if kind == "extra_forbidden" else at
    known = [name for model in owner(holder) for name in model.model_fields]
    if kind in {"too_long", "too_short"} or (kind == "missing" and key.isdigit()):
        findings.error(at, "must be a pair: [author, [part, ...]]", value=shorten(_value_at(value, at)))
    elif kind == "missing":
        name = to_snake(key)
        strangers = _strangers(_value_at(value, at), known)
        findings.error(at, f"`{name}` is missing", hint=missing_key_hint(name, strangers))
    elif kind == "extra_forbidden":
        twice = to_snake(key) in known
        message = f"is given twice, as `{to_camel(key)}` and `{to_snake(key)}`" if twice else f"unknown key `{key}`"
        findings.error(at, message, value=shorten(error["input"]), hint=None if twice else unknown_key_hint(key, known))
    elif kind in _WANTED:
        findings.error(at, f"must be {_WANTED[kind]}", value=shorten(error["input"]))
    else:
        message = error["msg"].replace("Input should be", "must be")
        findings.error(at, message[:1].lower() + message[1:], value=shorten(error["input"]))


def place(value: Any, loc: tuple[int | str, ...]) -> JsonPath:
    """Pydantic's location as a path into ``value``: union tags and the name of a missing key fall away."""
    at: JsonPath = ()
    for step in loc:
        spelled = _spelled(value, step)
        if spelled is not None:
            at = (*at, spelled)
            value = value[spelled]
    return at


def _spelled(value: Any, step: int | str) -> int | str | None:
    if isinstance(value, dict) and isinstance(step, str):
        return next((name for name in (step, to_snake(step), to_camel(step)) if name in value), None)
    inside = isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)
    return step if inside else None


def _needless_null(error: ErrorDetails, value: Any) -> JsonPath | None:
    """The path of a null that may be left out: its field has a default."""
    at = place(value, error["loc"])
    if error["input"] is not None or error["type"] == "missing" or not at or not isinstance(at[-1], str):
        return None
    name = to_snake(at[-1])
    fields = [model.model_fields[name] for model in owner(at[:-1]) if name in model.model_fields]
    parent = _parent(value, at)
    optional = any(not field.is_required() for field in fields)
    return at if optional and isinstance(parent, dict) and parent.get(at[-1], 0) is None else None


def _parent(value: Any, at: JsonPath) -> Any:
    return _value_at(value, at[:-1])


def _value_at(value: Any, at: JsonPath) -> Any:
    for step in at:
        value = value[step]
    return value


def _strangers(value: Any, known: list[str]) -> list[str]:
    return [key for key in value if to_snake(key) not in known] if isinstance(value, dict) else []


# What our own models check already; google-genai's rarer fields are extras there.
_OURS = {
    "Content": frozenset(Content.model_fields),
    "Part": frozenset(Part.model_fields),
    "FunctionCall": frozenset(FunctionCall.model_fields),
    "FunctionResponse": frozenset(FunctionResponse.model_fields),
}
_NONE: frozenset[str] = frozenset()
_PLAIN_PART = {"text"}
_SCALARS: dict[str, type] = {"str": str, "bool": bool, "int": int, "float": float, "bytes": bytes, "enum": str}
_WORDS = {
    "str": "a string",
    "enum": "a string",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "bytes": "base64",
}


def check_genai(value: Any, kind: str, at: JsonPath, findings: Findings) -> bool:
    """Report what google-genai refuses below ``value`` and our models would not.

    In place, null becomes absent and camelCase snake_case; returns whether ``value`` was changed.
    """
    if not isinstance(value, dict) or (value.keys() <= _PLAIN_PART and kind == "Part"):
        return False
    known = SPELLINGS[kind]
    ours = _OURS.get(kind, _NONE)
    changed = False
    for key in list(value):
        field = known.get(key)
        if field is None:
            _unknown(value, key, kind, at, findings)
            continue
        item = value[key]
        if item is None and (field not in ours or key != field):
            del value[key]  # ADK writes every absent field as null
            changed = True
            continue
        if key != field and value.get(field) is not None:
            findings.error((*at, key), f"is given twice, as `{key}` and `{field}`")
            continue
        if key != field:
            del value[key]
            value[field] = item
            changed = True
        if item is not None:
            changed |= _check(item, FIELDS[kind][field], (*at, field), findings, checked=field in ours)
    return changed


def _unknown(value: dict[str, Any], key: str, kind: str, at: JsonPath, findings: Findings) -> None:
    if kind == "Content":
        return  # the model refuses it
    hint = unknown_key_hint(key, FIELDS[kind])
    findings.error((*at, key), f"unknown key `{key}`", value=shorten(value[key]), hint=hint)


def _check(item: Any, kind: str, at: JsonPath, findings: Findings, *, checked: bool) -> bool:
    if kind.startswith("["):
        if not isinstance(item, list):
            return False if checked else _wrong(item, "a list", at, findings)
        found = [_check_item(one, kind[1:-1], (*at, index), findings, checked) for index, one in enumerate(item)]
        return any(found)
    if kind == "object" or kind in FIELDS:
        if not isinstance(item, dict):
            return False if checked else _wrong(item, "an object", at, findings)
        return kind != "object" and check_genai(item, kind, at, findings)
    if not checked:
        _check_scalar(item, kind, at, findings)
    return False


def _check_item(item: Any, kind: str, at: JsonPath, findings: Findings, checked: bool) -> bool:
    return _check(item, kind, at, findings, checked=checked)


def _check_scalar(item: Any, kind: str, at: JsonPath, findings: Findings) -> None:
    if kind.startswith("'"):
        if item != kind[1:]:
            _wrong(item, shorten(kind[1:]), at, findings)
        return
    if kind == "bytes" and isinstance(item, str):
        # Standard and URL-safe letters may be mixed, which google-genai refuses: the meaning is plain.
        item = item.replace("-", "+").replace("_", "/")
    try:
        _adapter(kind).validate_json(json.dumps(item))
    except ValidationError:
        _wrong(item, _WORDS[kind], at, findings)


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_SCALARS[kind], config=ConfigDict(val_json_bytes="base64"))


def _wrong(item: Any, wanted: str, at: JsonPath, findings: Findings) -> bool:
    findings.error(at, f"must be {wanted}", value=shorten(item))
    return False
