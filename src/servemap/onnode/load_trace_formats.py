"""The forms of recorded traffic: what tells each by its first line, and where its facts stand."""

from typing import Dict, NamedTuple, Optional, Tuple


class Format(NamedTuple):
    """One form of a trace.

    - csv: a table with a header line; else one JSON object a line
    - header: columns or keys that tell the form; all of them must be there
    - names: our name of a fact -> theirs: isl, osl (tokens), at (time of arrival), elapsed (seconds
      from there to the whole answer), think_s, conversation, chat and parent (a request and the
      one that it follows), blocks (ids of leading blocks of the prompt)
    - timestamp_s: seconds that a time's unit counts; None: times are dates
    - block_tokens: tokens of a block
    - failures: a length of 0 is a request that failed when it was recorded, and is left out
    """

    name: str
    csv: bool
    header: Tuple[str, ...]
    names: Dict[str, str]
    timestamp_s: Optional[float]
    block_tokens: int = 16
    failures: bool = True


FORMATS = (
    Format(
        "servemap",
        False,
        ("isl",),
        {
            "isl": "isl",
            "osl": "osl",
            "at": "at_s",
            "think_s": "think_s",
            "conversation": "conversation",
            "blocks": "hash_ids",
        },
        1.0,
        failures=False,
    ),
    # github.com/alibaba-edu/qwen-bailian-usagetraces-anon, README: seconds, blocks of 16 tokens,
    # parent_chat_id is -1 for the first request of a conversation.
    Format(
        "qwen-bailian",
        False,
        ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length"),
        {
            "isl": "input_length",
            "osl": "output_length",
            "at": "timestamp",
            "chat": "chat_id",
            "parent": "parent_chat_id",
            "blocks": "hash_ids",
        },
        1.0,
    ),
    # github.com/kvcache-ai/Mooncake, FAST25-release: ms since the first request, blocks of 512.
    Format(
        "mooncake",
        False,
        ("input_length", "output_length"),
        {
            "isl": "input_length",
            "osl": "output_length",
            "at": "timestamp",
            "conversation": "conversation",
            "blocks": "hash_ids",
        },
        0.001,
        512,
    ),
    # github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024.md.
    Format(
        "azure",
        True,
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        {"isl": "ContextTokens", "osl": "GeneratedTokens", "at": "TIMESTAMP"},
        None,
    ),
    # github.com/HPMLL/BurstGPT, README: seconds, failures have 0 response tokens; a session and the
    # time to the whole answer are in later releases only.
    Format(
        "burstgpt",
        True,
        ("Timestamp", "Request tokens", "Response tokens"),
        {
            "isl": "Request tokens",
            "osl": "Response tokens",
            "at": "Timestamp",
            "elapsed": "Elapsed time",
            "conversation": "Session ID",
        },
        1.0,
    ),
)

TEXTS = ("conversations", "messages", "conversation", "prompt", "text", "instruction")
"""Keys under which sets of conversations, such as ShareGPT, have their texts."""
