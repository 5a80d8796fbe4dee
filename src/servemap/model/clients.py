"""Load clients of others that a case may name."""

from typing import Final, Literal

from pydantic import Field

from servemap.model.base import EnvName, Model, Program

OWN: Final = "servemap"
ClientName = Literal["vllm-bench", "sglang-bench", "aiperf"]

OWN_OPTIONS: dict[str, frozenset[str]] = {
    "vllm-bench": frozenset(
        {
            "--backend", "--base-url", "--endpoint", "--model", "--tokenizer", "--dataset-name",
            "--random-input-len", "--random-output-len", "--random-range-ratio",
            "--random-prefix-len", "--input-len", "--output-len", "--num-prompts",
            "--max-concurrency", "--request-rate", "--seed", "--extra-body", "--disable-tqdm",
            "--save-result", "--save-detailed", "--append-result", "--result-dir",
            "--result-filename", "--percentile-metrics", "--metric-percentiles",
        }
    ),
    "sglang-bench": frozenset(
        {
            "--backend", "--base-url", "--host", "--port", "--model", "--served-model-name",
            "--tokenizer", "--dataset-name", "--random-input-len", "--random-output-len",
            "--random-range-ratio", "--num-prompts", "--max-concurrency", "--request-rate",
            "--seed", "--extra-request-body", "--disable-tqdm", "--output-file",
            "--output-details", "--warmup-requests", "--ready-check-timeout-sec",
        }
    ),
    "aiperf": frozenset(
        {
            "--model", "--url", "--endpoint-type", "--streaming", "--tokenizer", "--isl", "--osl",
            "--request-count", "--concurrency", "--random-seed", "--extra-inputs", "--ui",
            "--no-gpu-telemetry", "--no-server-metrics", "--output-artifact-dir",
            "--request-timeout-seconds", "--export-level",
            # Other names of the same, and what gives a whole load by another way.
            "-m", "--model-names", "-u", "--prompt-input-tokens-mean",
            "--synthetic-input-tokens-mean", "--prompt-output-tokens-mean",
            "--output-tokens-mean", "--num-requests", "--artifact-dir", "--ui-type",
            "--profile-export-level", "--profile-export-prefix", "--profile-export-file",
            "--config", "-f",
        }
    ),
}  # fmt: skip
"""Options that `measure.clients` gives each client from the case, so `args` may not."""

CUTS_OPTIONS = frozenset({"vllm-bench", "sglang-bench"})
"""Clients that take the beginning of an option for the option."""

TIMES_REQUESTS = frozenset({"aiperf"})
"""Clients that end a request after a time that they are given."""


class ClientSpec(Model):
    """Where a load client of others lives on the node that the load runs on."""

    python: Program = Field(description="Interpreter on the node that has the client.")
    tokenizer: str | None = Field(
        None, description="Tokenizer that it makes prompts with; model.path if absent."
    )
    env: dict[EnvName, str] = {}
    args: list[str] = Field([], description="Further words of its command, given as they are.")
