"""Output of accelerators' tools: nvidia-smi, DCGM, and what other vendors have for them."""

from servemap.parsers.frame import Kind

KINDS: tuple[Kind, ...] = ()
