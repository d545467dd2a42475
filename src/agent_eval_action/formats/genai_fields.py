"""The fields google-genai's Content, grounding and usage types take (google-genai 2.34): names and kinds.

Importing google-genai to ask it would cost most of a second per start. A test holds this table to the
installed one. ``[X]`` is a list of X, ``object`` a free JSON object, ``'X`` the literal string X.
"""

from __future__ import annotations

from typing import Final

from pydantic.alias_generators import to_camel

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
