"""Workloads of the campaign file: the kinds of cases."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from servemap.model.base import Length, Model, Slug
from servemap.model.clients import OWN, ClientName
from servemap.model.slo import Slo

WEEK_S = 7 * 24 * 3600

Repeats = Annotated[int, Field(ge=1, le=1000)]
Tries = Annotated[int, Field(ge=1, le=100)]
MOST_CONCURRENCY = 65_535
Concurrency = Annotated[int, Field(ge=1, le=MOST_CONCURRENCY)]
Prompts = Annotated[int, Field(ge=1, le=10_000_000)]
Seconds = Annotated[float, Field(gt=0, le=WEEK_S)]
SecondsOrZero = Annotated[float, Field(ge=0, le=WEEK_S)]


class Fallback(Model):
    """Lengths to try when the planned ones do not fit; never compared with the planned ones."""

    isl: Length
    osl: Length | None = None
    on: list[Literal["context", "oom"]] = ["context", "oom"]


class CaseBase(Model):
    """What every kind of case has."""

    id: Slug
    repeats: Repeats | None = Field(None, description="Planned repeats; the policy's if absent.")
    warmup: Literal["same", "short", "none"] = Field(
        "short",
        description="Before the window: a wave of the same shape, one short request, or nothing.",
    )
    cache: Literal["keep", "flush"] = Field(
        "keep", description="`flush`: the engine's prefix cache is emptied before each segment."
    )
    request_timeout_s: Seconds = 120
    case_timeout_s: Seconds = 600
    expect: Literal["success", "failure"] = Field(
        "success", description="`failure` ends the retries of a case that is known to fail."
    )
    expected_s: Seconds | None = Field(None, description="Expected duration, for planning.")


class FixedCase(CaseBase):
    """ISL x OSL at one concurrency, closed loop."""

    kind: Literal["fixed"] = "fixed"
    isl: Length
    osl: Length
    concurrency: Concurrency
    num_prompts: Prompts | None = Field(None, description="One wave (= concurrency) if absent.")
    min_window_s: SecondsOrZero = Field(
        0, description="Whole waves are repeated until the window is at least this long."
    )
    fallback: Fallback | None = None
    client: Literal["servemap", ClientName] = Field(
        OWN, description="Load client that sends the requests; the campaign's `clients` has it."
    )
    watching: Literal["usual", "none", "10hz", "compare"] = Field(
        "usual",
        description="Collectors: as the campaign says, none, or ten times a second; `compare` "
        "stands for a case of each (`-unwatched`, `-watched`, `-10hz`).",
    )


class RateCase(CaseBase):
    """ISL x OSL at a mean rate of arrivals, open loop: nobody waits for an answer."""

    kind: Literal["rate"]
    isl: Length
    osl: Length
    rate_rps: Annotated[float, Field(gt=0, le=100_000)] = Field(
        description="Requests per second on average."
    )
    num_prompts: Prompts
    arrivals: Literal["poisson", "gamma", "constant"] = Field(
        "poisson", description="How the gaps between requests are drawn."
    )
    burstiness: Annotated[float, Field(gt=0, lt=1000)] | None = Field(
        None, description="Shape of gamma gaps: below 1 more bursty than poisson, above it less."
    )

    @model_validator(mode="after")
    def _shaped(self) -> "RateCase":
        if (self.burstiness is None) == (self.arrivals == "gamma"):
            raise ValueError("burstiness goes with arrivals: gamma, and only with that")
        return self


class ChatCase(CaseBase):
    """A closed loop of chat requests: messages of common words, sized by the server's own count."""

    kind: Literal["chat"]
    isl: Length = Field(description="Input length with template, system messages and tools.")
    osl: Length
    concurrency: Concurrency
    num_prompts: Prompts | None = Field(None, description="One wave (= concurrency) if absent.")
    min_window_s: SecondsOrZero = Field(
        0, description="Whole waves are repeated until the window is at least this long."
    )
    roles: Annotated[list[Literal["system", "user", "assistant"]], Field(min_length=1)] = Field(
        ["system", "user"], description="Messages in order; a user must be among them."
    )
    system_words: Annotated[int, Field(ge=1, le=100_000)] = Field(
        32, description="Words of each system message, the same in all requests."
    )

    @field_validator("roles")
    @classmethod
    def _asked(cls, roles: list[str]) -> list[str]:
        if "user" not in roles:
            raise ValueError("a user must be among the roles")
        return roles


class ToolsCase(ChatCase):
    """The same with tool schemas in each request."""

    kind: Literal["tools"]  # type: ignore[assignment]
    tools: Annotated[int, Field(ge=1, le=1000)] = Field(
        29, description="Tool schemas, the same in all requests."
    )


class PrefixCase(CaseBase):
    """A closed loop whose prompts share their first part, which the warm-up brings in."""

    kind: Literal["prefix"]
    isl: Length
    osl: Length
    share: Annotated[float, Field(ge=0, le=0.95)] = Field(
        description="Part of the input that all prompts share."
    )
    concurrency: Concurrency
    num_prompts: Prompts | None = Field(None, description="One wave (= concurrency) if absent.")
    min_window_s: SecondsOrZero = Field(
        0, description="Whole waves are repeated until the window is at least this long."
    )
    warmup: Literal["same", "short"] = Field(
        "short", description="Before the window: a wave of the same shape, or one request."
    )


class ReplayCase(CaseBase):
    """Recorded requests: at their times, or in a closed loop with the pauses between turns."""

    kind: Literal["replay"]
    trace: Annotated[str, Field(min_length=1)] = Field(
        description="File of the recorded requests; relative to the folder of the command."
    )
    isl_cap: Length | None = Field(None, description="Longer prompts are cut to this.")
    osl_cap: Length | None = Field(None, description="Longer answers are cut to this.")
    num_prompts: Prompts | None = Field(
        None, description="Only the first so many requests; all if absent."
    )
    concurrency: Concurrency | None = Field(
        None, description="Conversations at a time (closed loop); the trace's times if absent."
    )
    speed: Annotated[float, Field(gt=0, le=1_000_000)] = Field(
        1, description="The trace's times are played so many times as fast; not with concurrency."
    )
    think: Literal["keep", "compress", "none"] = Field(
        "keep", description="Pauses between the turns of a conversation, in a closed loop."
    )
    think_factor: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Part of a pause that `think: compress` leaves."
    )
    timestamp_s: Annotated[float, Field(gt=0, le=WEEK_S)] | None = Field(
        None, description="Seconds of the trace's unit of time, where it is not that of its form."
    )
    block_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Tokens of a block with a hash id, where not those of the form."
    )

    @model_validator(mode="after")
    def _loop(self) -> "ReplayCase":
        if self.concurrency is not None and self.speed != 1:
            raise ValueError("speed is for the trace's times; with concurrency use think")
        if self.concurrency is None and self.think != "keep":
            raise ValueError("think is for a closed loop; give concurrency too")
        if (self.think_factor is None) == (self.think == "compress"):
            raise ValueError("think_factor goes with think: compress, and only with that")
        return self

    @property
    def pause_factor(self) -> float:
        """What the pauses between turns are multiplied by."""
        if self.concurrency is None:
            return 0.0
        return {"keep": 1.0, "none": 0.0}.get(self.think, self.think_factor or 0.0)


class Background(Model):
    """The steady load of a mixed case."""

    isl: Length
    osl: Length
    concurrency: Concurrency
    num_prompts: Prompts | None = None
    min_window_s: SecondsOrZero = 0


class Inject(Model):
    """The load injected into a mixed case after measurement began."""

    isl: Length
    osl: Length
    after_s: SecondsOrZero
    every_s: Seconds | None = None
    count: Annotated[int, Field(ge=1, le=100_000)] = 1


class MixedCase(CaseBase):
    """Background load alone (`control`), then the same with an injection (`injected`)."""

    kind: Literal["mixed"]
    background: Background
    inject: Inject


class LevelsCase(CaseBase):
    """ISL x OSL at several levels: concurrencies of a closed loop, or rates of an open one."""

    isl: Length
    osl: Length
    num_prompts: Prompts | None = Field(
        None, description="Requests at each level, rounded up to whole waves of a closed loop."
    )
    min_window_s: SecondsOrZero = Field(
        0, description="Whole waves, or arrivals, go on until the window is at least this long."
    )
    arrivals: Literal["poisson", "gamma", "constant"] = Field(
        "poisson", description="As in kind `rate`; of rates only."
    )
    burstiness: Annotated[float, Field(gt=0, lt=1000)] | None = Field(
        None, description="As in kind `rate`; of rates only."
    )

    @model_validator(mode="after")
    def _shaped(self) -> "LevelsCase":
        if (self.burstiness is None) == (self.arrivals == "gamma"):
            raise ValueError("burstiness goes with arrivals: gamma, and only with that")
        return self


class CurveCase(LevelsCase):
    """A declared list of levels, each an ordinary case of its own (see `model.curves`)."""

    kind: Literal["curve"]
    concurrencies: list[Concurrency] = Field(
        [], description="Levels of a closed loop; each is a case of kind `fixed`, `ID-cN`."
    )
    rates_rps: list[Annotated[float, Field(gt=0, le=100_000)]] = Field(
        [], description="Levels of an open loop; each is a case of kind `rate`, `ID-rN`."
    )

    @model_validator(mode="after")
    def _one_list(self) -> "CurveCase":
        levels = [*self.concurrencies, *self.rates_rps]
        if bool(self.concurrencies) == bool(self.rates_rps):
            raise ValueError("give either concurrencies or rates_rps")
        if len(set(levels)) < len(levels):
            raise ValueError("a level is there twice")
        if self.rates_rps and not self.num_prompts and not self.min_window_s:
            raise ValueError("rates need num_prompts or min_window_s")
        return self


class SearchCase(LevelsCase):
    """The largest level that meets an SLO, by doubling, then bisection (see `model.search`)."""

    kind: Literal["search"]
    over: Literal["concurrency", "rate"] = "concurrency"
    start: Annotated[float, Field(gt=0, le=100_000)] = Field(1.0, description="The first level.")
    most: Annotated[float, Field(gt=0, le=100_000)] = Field(description="No level is above it.")
    num_prompts: Prompts = Field(
        100, description="Requests of each probe, rounded up to whole waves of a closed loop."
    )
    slo: Slo | None = Field(None, description="Limits of each request; the campaign's if absent.")
    slo_share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.99, description="Part of a probe's requests that must meet the SLO."
    )
    tolerance: Annotated[float, Field(ge=0, le=1)] = Field(
        0.05,
        description="The search has converged when the next level that misses is no more than this "
        "part above the answer; concurrencies need be no closer than 1.",
    )
    max_probes: Annotated[int, Field(ge=1, le=99)] = 16
    max_s: Seconds = Field(1800, description="Longest that all probes together may take.")

    @model_validator(mode="after")
    def _bounded(self) -> "SearchCase":
        if self.start > self.most:
            raise ValueError("start is above most")
        if self.over == "concurrency" and not (self.start.is_integer() and self.most.is_integer()):
            raise ValueError("a concurrency is a whole number")
        if self.over == "concurrency" and self.most > MOST_CONCURRENCY:
            raise ValueError(f"{MOST_CONCURRENCY} is the most concurrency")
        return self


def _kind(value: Any) -> str | None:
    if isinstance(value, CaseBase):
        return str(getattr(value, "kind", None))
    return str(value.get("kind", "fixed")) if isinstance(value, dict) else None


CaseSpec = Annotated[
    Annotated[FixedCase, Tag("fixed")]
    | Annotated[RateCase, Tag("rate")]
    | Annotated[ChatCase, Tag("chat")]
    | Annotated[ToolsCase, Tag("tools")]
    | Annotated[PrefixCase, Tag("prefix")]
    | Annotated[ReplayCase, Tag("replay")]
    | Annotated[MixedCase, Tag("mixed")]
    | Annotated[CurveCase, Tag("curve")]
    | Annotated[SearchCase, Tag("search")],
    Discriminator(_kind),
]
