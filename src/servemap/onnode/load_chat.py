"""Chat requests: messages of common words, tool schemas, and how many tokens those become.

A chat endpoint takes no token ids, so the input length is set by words. What a word and everything
around them (template, system messages, tools) cost in tokens is measured with the server itself:
it counts two prompts that hold every word once and twice.
"""

import json
import math
import random
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .checked import SpecError, Table, refuse

# Short, common and of one length: nearly all tokenizers have one token for each, others as many
# bytes for each, so that prompts of the same number of words have the same number of tokens.
_LINES = (
    "time year work life hand part case week room fact line home side kind head name team idea ",
    "book word area game form back city body door face road land care wall king girl food hour ",
    "army view post size tree file club rate page date hill risk farm bird song milk rain snow ",
    "wind fire gold blue cold warm dark deep east west love hope help talk walk play turn move ",
    "live hold read sing ride swim jump cook wash push pull give take make keep find tell call ",
    "feel know want need look seem show open stop stay wait meet send fall rise grow burn melt ",
    "lake moon star ship boat fish bear wolf lion deer frog",
)
WORDS = "".join(_LINES).split()
ROLES = ["system", "user", "assistant"]
MOST_TOOLS = 1000


class Chat(NamedTuple):
    """The shape of a chat request: roles in order, words of each system message, tool schemas."""

    roles: Tuple[str, ...]
    system_words: int
    tools: int


class Sizing(NamedTuple):
    """What a server counts: tokens of a word, and of everything beside the words."""

    tokens_per_word: float
    overhead_tokens: float


def parse_chat(raw: Any) -> Optional[Chat]:
    """Check the key `chat` of a specification; raises SpecError."""
    if raw is None:
        return None
    table = Table(raw, "chat")
    roles = table.get("roles", ["user"])
    if not isinstance(roles, list) or "user" not in roles or set(roles) - set(ROLES):
        refuse("chat.roles", roles, "give a list of system, user and assistant, with a user in it")
    chat = Chat(tuple(roles), table.whole("system_words", 32, 1), table.whole("tools", 0, 0))
    table.finish()
    if chat.tools > MOST_TOOLS:
        refuse("chat.tools", chat.tools, f"give at most {MOST_TOOLS}")
    return chat


def messages(chat: Chat, words: List[str], seed: str) -> List[Dict[str, str]]:
    """Return the messages: system texts are the same for one seed, `words` fill the others."""
    own = [index for index, role in enumerate(chat.roles) if role != "system"]
    made: List[Dict[str, str]] = []
    for index, role in enumerate(chat.roles):
        if role == "system":
            draw = random.Random(f"{seed}/system/{index}")
            text = draw.choices(WORDS, k=chat.system_words)
        else:
            place = own.index(index)
            begin, end = (len(words) * edge // len(own) for edge in (place, place + 1))
            text = words[begin:end]
        made.append({"role": role, "content": " ".join(text)})
    return made


def tool_schemas(count: int) -> List[Dict[str, Any]]:
    """Return so many function tools, of the shapes that JSON Schema allows; always the same."""
    tools: List[Dict[str, Any]] = []
    for index in range(count):
        draw = random.Random(f"tool/{index}")
        names = draw.sample(WORDS, 4)
        pick = {"type": "string", "enum": draw.sample(WORDS, 3)}
        several = {"type": "array", "items": {"type": "number"}, "maxItems": 8}
        nested = {
            "type": "object",
            "properties": {names[0]: {"type": "integer", "minimum": 0}, names[1]: pick},
            "required": [names[0]],
        }
        plain = {"type": "string", "description": " ".join(draw.choices(WORDS, k=8))}
        shapes = [plain, pick, several, nested]
        properties = {name: shapes[(index + n) % 4] for n, name in enumerate(names)}
        function = {
            "name": f"tool_{index + 1}_{names[0]}",
            "description": " ".join(draw.choices(WORDS, k=12)),
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": names[: 1 + index % 3],
            },
        }
        tools.append({"type": "function", "function": function})
    return tools


def chat_fields(chat: Chat, words: List[str], seed: str) -> str:
    """Return the fields of a request's body that hold its messages and tools, as JSON members."""
    fields: Dict[str, Any] = {"messages": messages(chat, words, seed)}
    if chat.tools:
        fields["tools"] = tool_schemas(chat.tools)
    return json.dumps(fields, separators=(",", ":"))[1:-1]


def sizing_words(seed: str) -> List[List[str]]:
    """Return the words of the two prompts that the server counts."""
    made = []
    for times in (1, 2):
        words = WORDS * times
        random.Random(f"{seed}/sizing/{times}").shuffle(words)
        made.append(words)
    return made


def measure_sizing(counts: List[Optional[int]]) -> Sizing:
    """Return the sizing from the server's counts of the two prompts; raises SpecError."""
    first, second = counts
    if first is None or second is None:
        raise SpecError("the server counts no prompt tokens, so chat prompts have no length")
    per_word = (second - first) / len(WORDS)
    if per_word <= 0:
        raise SpecError(f"the server counts {first} tokens, and {second} for twice that")
    return Sizing(per_word, first - per_word * len(WORDS))


def _least(chat: Chat) -> int:
    return len([role for role in chat.roles if role != "system"])


def shortest(sizing: Sizing, chat: Chat) -> int:
    """Return the least tokens that a prompt of this shape has."""
    return math.ceil(sizing.overhead_tokens + _least(chat) * sizing.tokens_per_word)


def words_for(sizing: Sizing, chat: Chat, isl: int) -> Tuple[int, int]:
    """Return how many words come nearest to `isl` tokens, and how many tokens those are.

    Raises SpecError where template, system messages and tools alone are longer.
    """
    words = round((isl - sizing.overhead_tokens) / sizing.tokens_per_word)
    if words < _least(chat):
        raise SpecError(
            f"isl {isl} is less than the {shortest(sizing, chat)} tokens that the template, the "
            "system messages, the tools and a word in each other message take here; raise it"
        )
    return words, round(sizing.overhead_tokens + words * sizing.tokens_per_word)
