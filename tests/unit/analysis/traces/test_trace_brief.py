"""Names that are cut keep what tells them apart."""

from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.traces.brief import brief


def test_kernels_that_differ_at_their_ends_stay_apart() -> None:
    one, other = (
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x" + end for end in ("16", "96")
    )
    assert brief(one, 40) != brief(other, 40)
    assert brief(one, 40).startswith("Cijk_Alik_Bljk_BBS_BH") and brief(one, 40).endswith("x16")


@given(st.text(), st.integers(10, 80))
def test_never_longer_than_there_is_room(name: str, width: int) -> None:
    shown = brief(name, width)
    assert len(shown) == min(len(name), width)
    assert name.startswith(shown.partition("…")[0][:5])
