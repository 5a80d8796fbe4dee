"""What is known of answers that did not end well, and of counts that cannot be."""

from collections.abc import Sequence

TOKEN_KINDS = "tkc"


def partial_tokens(kinds: str, counts: Sequence[int | None], output_tokens: int | None) -> int:
    """Return how many tokens of an answer came before it failed.

    As the server counted them on its events, or in the end; at least one for every event that
    carries a token, so where the server counts only whole answers this is the least that it can
    be. A count without any event that could hold a token is a claim: nothing came.

    Args:
        kinds: one letter an event (see `requests.token_chunks`).
        counts: the server's cumulative count on each event, None where it carried none.
        output_tokens: the server's last word on the total, None where it never said.
    """
    carrying = sum(kind in TOKEN_KINDS for kind in kinds)
    counted = max(
        (n for kind, n in zip(kinds, counts, strict=False) if n and kind in TOKEN_KINDS + "r"),
        default=0,
    )
    if not carrying and not counted:
        return 0
    return max(carrying, counted, output_tokens or 0)


def contradicted(reasoning_chunks: int, reasoning_tokens: int | None) -> bool:
    """Say whether a count of reasoning is less than what came: a chunk of it has a token at least.

    vLLM's parsers count from a start token on, which a template may have put into the prompt: they
    say 0 while all that comes is reasoning.
    """
    return reasoning_tokens is not None and reasoning_tokens < reasoning_chunks
