"""Free options of a container: how they are read, and which are refused before anything runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.check_server import check_server
from servemap.model.container_args import REFUSED, option_values
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ServerSpec


def check(**keys: object) -> None:
    check_server(
        ServerSpec.model_validate({"engine": "vllm", "container": {"image": "i:1", **keys}})
    )


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--ipc=host"], {"--ipc": ["host"]}),
        (["--ipc", "host", "--init"], {"--ipc": ["host"], "--init": []}),
        (["--ulimit", "a=1", "--ulimit=b=2"], {"--ulimit": ["a=1", "b=2"]}),
        (["-v/a:/b", "-v", "/c:/d"], {"-v": ["/a:/b", "/c:/d"]}),
        (["-itd"], {"-i": [], "-t": [], "-d": []}),
        (["-ite", "A=d"], {"-i": [], "-t": [], "-e": ["A=d"]}),
        (["--pids-limit", "-1"], {"--pids-limit": [], "-1": []}),
        (["--gpus=", "-", ""], {"--gpus": [""]}),
    ],
)
def test_options_and_their_values(words: list[str], found: dict[str, list[str]]) -> None:
    assert option_values(words) == found


@given(st.lists(st.text(max_size=8) | st.sampled_from(["-", "--", "-it", "--a=b", "-e"])))
def test_odd_words_are_read_without_an_error(words: list[str]) -> None:
    found = option_values(words)
    assert all(name.startswith("-") for name in found)
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in found


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_options_that_are_servemaps_own_are_refused(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(args=["--init", name])
    assert name in error.value.what
    assert error.value.where == "server.container.args"


@pytest.mark.parametrize(
    "words",
    [["--name=x"], ["-dit"], ["-l", "a=b"], ["--restart=always"], ["--label", "servemap.boot=x"]],
)
def test_however_they_are_spelled(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="cannot be given"):
        check(args=words)


@pytest.mark.parametrize(
    "words", [["host"], ["--ipc=host", "x"], ["--init", "x"], ["--a", "b", "c"]]
)
def test_a_word_that_would_be_taken_for_the_image(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="take it for the image"):
        check(args=words)


def test_ordinary_options_are_taken() -> None:
    check(args=["--gpus", "all", "--network=bridge", "-p", "1:1", "-u0", "--privileged", "-P"])


def test_an_image_by_digest_is_not_built() -> None:
    with pytest.raises(ConfigError) as error:
        check(image="i@sha256:00", build={"repo": "."})
    assert error.value.where == "server.container.image"
