"""SGLang, started as its own OpenAI-compatible server (`python -m sglang.launch_server`).

Option names are those of SGLang 0.5.23's argument parser; `--disable-cuda-graph` is deprecated
there and the only name that older versions know.
"""

from collections.abc import Mapping
from typing import Any

from servemap.engines import sglang_log
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
from servemap.engines.spelling import Spelling, check_even, option_name, with_default
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ModelSpec, ServerSpec

MODULE = "sglang.launch_server"
CHUNK = "chunked-prefill-size"
NO_CHUNKS = -1

SPELLING = Spelling(
    values={
        "context": "context-length",
        "max_active": "max-running-requests",
        "memory_fraction": "mem-fraction-static",
        "kv_dtype": "kv-cache-dtype",
        "max_batched_tokens": CHUNK,
        "attention_backend": "attention-backend",
        "moe_backend": "moe-runner-backend",
        "speculative_method": "speculative-algorithm",
        "speculative_model": "speculative-draft-model-path",
        "speculative_tokens": "speculative-num-draft-tokens",
        "tool_parser": "tool-call-parser",
        "reasoning_parser": "reasoning-parser",
        "chat_template": "chat-template",
    },
    switches={
        "prefix_cache": ({}, {"disable-radix-cache": True}),
        "chunked_prefill": ({}, {CHUNK: NO_CHUNKS}),
        "cuda_graph": ({}, {"disable-cuda-graph": True}),
    },
    own={
        "model": "model.path",
        "model-path": "model.path",
        "served-model-name": "model.name",
        "host": "server.bind",
        "port": "server.port",
        "tp": "server.topology.tp",
        "tp-size": "server.topology.tp",
        "tensor-parallel-size": "server.topology.tp",
        "pp-size": "server.topology.pp",
        "pipeline-parallel-size": "server.topology.pp",
        "dp-size": "server.topology.dp",
        "data-parallel-size": "server.topology.dp",
        "ep-size": "server.topology.ep",
        "expert-parallel-size": "server.topology.ep",
        "nnodes": "server.nodes",
        "node-rank": "server.nodes",
        "dist-init-addr": "the head's nodes.address and server.master_port",
    },
)
# Without them it serves no metrics, and the answers' usage says nothing of cached tokens.
_MEASURED: Mapping[str, Any] = {"enable-metrics": True, "enable-cache-report": True}
_INFO = ("server_info", "get_server_info")


class SGLang:
    """Adapter for SGLang on one node or, with one rank on each, on several."""

    name = "sglang"
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
        _refuse(server)
        return [
            *python_module(interpreter(server, python, workdir), MODULE, server.package),
            *flags(
                {
                    "model-path": model_path(server, model, workdir),
                    "served-model-name": model.name,
                    "host": server.bind,
                    "port": server.port,
                }
            ),
            *_sizes(server),
            *_ranks(server, placement),
            *_settings(server, model),
            *flags(with_default(server, _MEASURED)),
            *flags(server.args),
        ]

    def defaults(self, placement: Placement) -> dict[str, str]:  # noqa: ARG002 - all have the same
        """Return what makes NCCL say which network it took (see `Engine.defaults`)."""
        return {**TRACEABLE, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH"}

    def cache_flush(self, env: Mapping[str, Any]) -> Capability:  # noqa: ARG002 - always there
        """Return that it can be emptied (see `Attachable.cache_flush`)."""
        return Capability(True)

    def endpoints(self, base_url: str) -> Endpoints:
        """Return the server's URLs."""
        base = base_url.rstrip("/")
        return Endpoints(
            health=f"{base}/health",
            models=f"{base}/v1/models",
            completions=f"{base}/v1/completions",
            metrics=f"{base}/metrics",
            cache_flush=f"{base}/flush_cache",
            profile_start=f"{base}/start_profile",
            profile_stop=f"{base}/stop_profile",
            info={name: f"{base}/{name}" for name in _INFO},
        )

    def read_back(self, log_text: str, models_json: Any, info: Mapping[str, Any]) -> Effective:
        """Return what the log, `/v1/models` and the answer under either name say."""
        models = served_models(models_json)
        answers = [info.get(name) for name in _INFO]
        said = next((answer for answer in answers if isinstance(answer, dict)), {})
        return Effective(
            engine_version=sglang_log.version(said),
            model_names=tuple(model["id"] for model in models),
            context=longest_sequence(models, None),
            module_path=module_path(log_text),
            settings=sound(sglang_log.settings(log_text, said)),
            notes=sglang_log.notes(log_text),
        )

    def memory(self, log_text: str) -> tuple[RankMemory, ...]:
        """Return what the ranks of a node hold (see `Attachable.memory`)."""
        return sglang_log.memory(log_text)

    def asked(self, server: ServerSpec, model: ModelSpec) -> dict[str, Any]:
        """Return what the spec asks for (see `Attachable.asked`)."""
        found = SPELLING.asked(server, model) | server.topology.model_dump()
        # This number, given as a free argument, is no budget.
        if found.get("max_batched_tokens") == NO_CHUNKS:
            del found["max_batched_tokens"]
        return found


def _refuse(server: ServerSpec) -> None:
    SPELLING.refuse(server)
    settings, args = server.settings, {option_name(name) for name in server.args}
    if settings.max_batched_tokens is not None and settings.chunked_prefill is False:
        raise ConfigError(
            "without chunked prefill SGLang takes the longest prompt in one step, so "
            f"max_batched_tokens={settings.max_batched_tokens} bounds nothing",
            "server.settings.max_batched_tokens",
            "leave it out, or leave chunked_prefill on",
        )
    if settings.chunked_prefill is False and CHUNK in args:
        raise ConfigError(
            f"the argument {CHUNK} turns on what chunked_prefill turns off",
            f"server.args.{CHUNK}",
            "remove one of them",
        )


def _settings(server: ServerSpec, model: ModelSpec) -> list[str]:
    given = server.settings.model_dump(exclude_none=True)
    if with_default(server, {"context-length": True}):
        given.setdefault("context", model.context)
    return SPELLING.words(given)


def _sizes(server: ServerSpec) -> list[str]:
    """Return the options of the topology; those of size 1 are left out."""
    sizes = server.topology
    options = {"tp-size": sizes.tp, "pp-size": sizes.pp, "dp-size": sizes.dp, "ep-size": sizes.ep}
    return flags({option: size for option, size in options.items() if size > 1})


def _ranks(server: ServerSpec, placement: Placement) -> list[str]:
    if placement.ranks == 1:
        return []
    check_even(placement.ranks, server.topology.tp * server.topology.pp, "tp x pp")
    return flags(
        {
            "nnodes": placement.ranks,
            "node-rank": placement.rank,
            "dist-init-addr": f"{_host(placement.master)}:{placement.master_port}",
        }
    )


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
