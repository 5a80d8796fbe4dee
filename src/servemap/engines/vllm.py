"""vLLM, started as its own OpenAI-compatible server.

Option names are those of vLLM 0.32.0's argument parser. `python -m
vllm.entrypoints.openai.api_server` starts every version, so it is used where it suffices; ranks of
several nodes (`--nnodes`, `--headless`) and several front ends for data parallelism are known to
`vllm serve` alone. Older versions know fewer options: give those in `server.args`, and leave the
setting out.
"""

from collections.abc import Mapping
from typing import Any

from servemap.engines import vllm_log
from servemap.engines.base import (
    TRACEABLE,
    Capabilities,
    Capability,
    Effective,
    Endpoints,
    Placement,
    RankMemory,
    flags,
    interpreter,
    longest_sequence,
    model_path,
    served_models,
)
from servemap.engines.log_text import sound
from servemap.engines.module_start import module_path, python_module
from servemap.engines.spelling import Spelling, check_even, with_default
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ModelSpec, ServerSpec

SERVER = "vllm.entrypoints.openai.api_server"
COMMAND_LINE = "vllm.entrypoints.cli.main"
DEV_MODE = "VLLM_SERVER_DEV_MODE"

SPELLING = Spelling(
    values={
        "context": "max-model-len",
        "max_active": "max-num-seqs",
        "memory_fraction": "gpu-memory-utilization",
        "kv_dtype": "kv-cache-dtype",
        "max_batched_tokens": "max-num-batched-tokens",
        "attention_backend": "attention-backend",
        "moe_backend": "moe-backend",
        "speculative_method": "spec-method",
        "speculative_model": "spec-model",
        "speculative_tokens": "spec-tokens",
        "tool_parser": "tool-call-parser",
        "reasoning_parser": "reasoning-parser",
        "chat_template": "chat-template",
    },
    switches={
        "prefix_cache": ({"enable-prefix-caching": True}, {"enable-prefix-caching": False}),
        "chunked_prefill": ({"enable-chunked-prefill": True}, {"enable-chunked-prefill": False}),
        "cuda_graph": ({}, {"enforce-eager": True}),
    },
    own={
        "model": "model.path",
        "served-model-name": "model.name",
        "host": "server.bind",
        "port": "server.port",
        "tensor-parallel-size": "server.topology.tp",
        "pipeline-parallel-size": "server.topology.pp",
        "data-parallel-size": "server.topology.dp",
        "enable-expert-parallel": "server.topology.ep",
        "nnodes": "server.nodes",
        "node-rank": "server.nodes",
        "headless": "server.nodes",
        "master-addr": "the head's nodes.address",
        "master-port": "server.master_port",
    },
)
# Without it the answers' usage says nothing of cached tokens.
_MEASURED: dict[str, Any] = {"enable-prompt-tokens-details": True}


class Vllm:
    """Adapter for vLLM on one node or, with one rank on each, on several."""

    name = "vllm"
    capabilities = Capabilities(torch_profile=Capability(True))

    def argv(
        self,
        server: ServerSpec,
        model: ModelSpec,
        placement: Placement,
        *,
        python: str,
        workdir: str,
    ) -> list[str]:
        """Return the command that starts a rank (see `Engine.argv`)."""
        SPELLING.refuse(server)
        sizes = server.topology
        path = model_path(server, model, workdir)
        alone = placement.ranks == 1 and sizes.dp == 1
        given = server.settings.model_dump(exclude_none=True)
        given.setdefault("context", model.context)
        if "context" not in server.settings.model_fields_set and _given(server, "max-model-len"):
            del given["context"]
        return [
            *python_module(
                interpreter(server, python, workdir),
                SERVER if alone else COMMAND_LINE,
                server.package,
            ),
            *(["--model", path] if alone else ["serve", path]),
            *flags({"served-model-name": model.name, "host": server.bind, "port": server.port}),
            *_sizes(server),
            *_ranks(server, placement),
            *SPELLING.words(given),
            *flags(with_default(server, _MEASURED | _tools(server))),
            *flags(server.args),
        ]

    def defaults(self, placement: Placement) -> dict[str, str]:
        """Return what measurement needs (see `Engine.defaults`).

        `VLLM_SERVER_DEV_MODE` gives the call that empties the prefix cache, NCCL's messages say
        which network it took and which variables it read, and without `VLLM_HOST_IP` ranks meet at
        an address of vLLM's choice.
        """
        return {
            **TRACEABLE,
            "VLLM_HOST_IP": placement.address,
            DEV_MODE: "1",
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH",
        }

    def cache_flush(self, env: Mapping[str, Any]) -> Capability:
        """Return whether the variables leave the call there (see `Attachable.cache_flush`)."""
        # Its envs.py takes the variable for a number, and its absence for 0.
        said = env.get(DEV_MODE, "1")
        if isinstance(said, str) and not said.strip().strip("0"):
            return Capability(
                False, f"vLLM has the call only with {DEV_MODE}=1, and it is set to {said!r} here"
            )
        return Capability(True)

    def endpoints(self, base_url: str) -> Endpoints:
        """Return the server's URLs."""
        base = base_url.rstrip("/")
        return Endpoints(
            health=f"{base}/health",
            models=f"{base}/v1/models",
            completions=f"{base}/v1/completions",
            metrics=f"{base}/metrics",
            # With what a KV connector keeps outside; without one that changes nothing.
            cache_flush=f"{base}/reset_prefix_cache?reset_external=true",
            profile_start=f"{base}/start_profile",
            profile_stop=f"{base}/stop_profile",
            info={"version": f"{base}/version", "metrics": f"{base}/metrics"},
        )

    def read_back(self, log_text: str, models_json: Any, info: Mapping[str, Any]) -> Effective:
        """Return what the log, `/v1/models`, `/version` and the metrics say."""
        models = served_models(models_json)
        return Effective(
            engine_version=vllm_log.version(log_text, info.get("version")),
            model_names=tuple(model["id"] for model in models),
            context=longest_sequence(models, None),
            module_path=module_path(log_text),
            settings=sound(vllm_log.settings(log_text, info.get("metrics"))),
            notes=vllm_log.notes(log_text),
        )

    def memory(self, log_text: str) -> tuple[RankMemory, ...]:
        """Return what the processes of a node hold (see `Attachable.memory`)."""
        return vllm_log.memory(log_text)

    def asked(self, server: ServerSpec, model: ModelSpec) -> dict[str, Any]:
        """Return what the spec asks for (see `Attachable.asked`).

        An option `max-model-len` that is no number (`auto`, `-1`, `32k`) leaves the model's.
        """
        asked = SPELLING.asked(server, model) | server.topology.model_dump()
        if not isinstance(asked["context"], int) or asked["context"] < 0:
            asked["context"] = model.context
        return asked


def _tools(server: ServerSpec) -> dict[str, Any]:
    """Return the switch without which a parser of tool calls is loaded and not used."""
    return {"enable-auto-tool-choice": True} if server.settings.tool_parser else {}


def _given(server: ServerSpec, option: str) -> bool:
    return not with_default(server, {option: True})


def _sizes(server: ServerSpec) -> list[str]:
    """Return the options of the topology; those of size 1 are left out."""
    sizes = server.topology
    if sizes.ep not in (1, sizes.tp * sizes.dp):
        raise ConfigError(
            f"vLLM spreads experts over all {sizes.tp * sizes.dp} ranks of tp x dp, "
            f"ep={sizes.ep} was asked",
            "server.topology.ep",
            f"give 1 or {sizes.tp * sizes.dp}",
        )
    options = {
        "tensor-parallel-size": sizes.tp,
        "pipeline-parallel-size": sizes.pp,
        "data-parallel-size": sizes.dp,
    }
    words = flags({option: size for option, size in options.items() if size > 1})
    return [*words, "--enable-expert-parallel"] if sizes.ep > 1 else words


def _ranks(server: ServerSpec, placement: Placement) -> list[str]:
    if placement.ranks == 1:
        return []
    sizes = server.topology
    check_even(placement.ranks, sizes.tp * sizes.pp * sizes.dp, "tp x pp x dp")
    words = flags(
        {
            "nnodes": placement.ranks,
            "node-rank": placement.rank,
            "master-addr": placement.master,
            "master-port": placement.master_port,
        }
    )
    return [*words, "--headless"] if placement.rank else words
