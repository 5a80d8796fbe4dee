"""How unevenly tokens went to experts, by layer."""

from dataclasses import dataclass

from servemap.parsers.experts import Counts


@dataclass(frozen=True)
class LayerLoad:
    """One layer: `max_over_mean` is the busiest expert's tokens over the mean of all experts."""

    layer: int
    tokens: int
    max_over_mean: float
    busiest_expert: int
    experts_without_tokens: int


@dataclass(frozen=True)
class ExpertLoad:
    """All layers that got tokens; dense layers, which have no experts, get none."""

    experts: int
    layers: list[LayerLoad]


def expert_load(counts: Counts) -> ExpertLoad:
    """Return the load by layer; `counts` is tokens, shape (layers, experts)."""
    layers = [
        LayerLoad(
            number,
            int(row.sum()),
            float(row.max() / row.mean()),
            int(row.argmax()),
            int((row == 0).sum()),
        )
        for number, row in enumerate(counts)
        if row.any()
    ]
    return ExpertLoad(counts.shape[1], layers)


def say_load(load: ExpertLoad) -> str:
    """Return the answer to whether expert loads are uneven."""
    ratios = sorted(one.max_over_mean for one in load.layers)
    worst = max(load.layers, key=lambda one: one.max_over_mean)
    return (
        f"tokens of {len(load.layers)} layers with {load.experts} experts, by the recorder: the "
        f"busiest expert of a layer gets {ratios[len(ratios) // 2]:.3g} times the mean (median "
        f"layer), at most {worst.max_over_mean:.3g} times (layer {worst.layer}, expert "
        f"{worst.busiest_expert})"
    )
