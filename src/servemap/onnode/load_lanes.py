"""From a specification to the streams at run time: what makes each of their requests."""

from typing import Callable, Dict, List, Optional, Tuple

from .load_call import Lane
from .load_chat import WORDS, chat_fields
from .load_prompts import Prompts, Target, request_bytes, seed_tag
from .load_spec import LoadSpec, Stream

Size = Callable[[Stream], int]
Render = Callable[[List[str], int, str], bytes]


def make_lanes(spec: LoadSpec, render: Render, size: Size) -> Dict[str, List[Lane]]:
    """Return the streams of every segment, warm-up first, with prompts that no two requests share.

    Args:
        spec: the specification.
        render: bytes of a request from its tokens or words, its output length and its id.
        size: how many tokens or words a stream's prompts have; asked when one is made.
    """
    words = WORDS if spec.chat else [str(token) for token in range(*spec.vocab)]
    prompts = Prompts(spec.seed, words, balanced=spec.chat is not None)
    segments = ([spec.warmup] if spec.warmup else []) + list(spec.segments)
    streams = [stream for segment in segments for stream in segment.streams]
    total = sum(stream.num_prompts for stream in streams)
    lanes: Dict[str, List[Lane]] = {}
    first = number = 0
    for segment in segments:
        lanes[segment.name] = []
        for stream in segment.streams:
            own = "" if stream.name == segment.name else f"/{stream.name}"
            ordinals = (first, total + number, len(streams))
            make = _maker(prompts, stream, segment.name + own, ordinals, render, size)
            lanes[segment.name].append(Lane(stream, make))
            first += stream.num_prompts
            number += 1
    return lanes


def _maker(
    prompts: Prompts,
    stream: Stream,
    prefix: str,
    ordinals: Tuple[int, int, int],
    render: Render,
    size: Size,
) -> Callable[[int], Tuple[str, bytes]]:
    """Return what makes a stream's requests; repeated waves take ordinals beyond all planned.

    `ordinals`: of the first planned request, of the first repeated one, and the step there.
    """
    planned, repeated, step = ordinals

    def make(index: int) -> Tuple[str, bytes]:
        ordinal = planned + index
        if index >= stream.num_prompts:
            ordinal = repeated + (index - stream.num_prompts) * step
        call_id = f"{prefix}-{index + 1:06d}"
        if stream.recorded:
            request = stream.recorded[index]
            tokens = prompts.replayed(ordinal, request, stream.block_tokens)
            return call_id, render(tokens, request.osl, call_id)
        tokens = prompts.tokens(ordinal, size(stream), stream.prefix)
        return call_id, render(tokens, stream.osl, call_id)

    return make


def renderer(spec: LoadSpec, target: Target, api_key: Optional[str]) -> Render:
    """Return what makes a request's bytes from its prompt, output length and id."""
    tag, chat = seed_tag(spec.seed), spec.chat

    def render(tokens: List[str], osl: int, call_id: str) -> bytes:
        content = f'"prompt":[{",".join(tokens)}]'
        if chat is not None:
            content = chat_fields(chat, tokens, spec.seed)
        return request_bytes(
            target, content, osl, spec.model, spec.request, f"{tag}-{call_id}", api_key
        )

    return render
