"""Images: what a node says of one, how it may come there, and whether nodes have the same."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.errors import ConfigError, LaunchError
from servemap.model.server_spec import Container
from servemap.nodes.base import Completed
from servemap.nodes.local import LocalNode
from servemap.server.container.image import (
    REVISION,
    Image,
    build_argv,
    built_name,
    check_images,
    ensure_image,
    find_image,
    image_drift,
    images_differ,
    parse_image,
)

ABSENT = "Error response from daemon: No such image: ours:1"


def said(image_id: str, digests: Any = None, labels: Any = None) -> str:
    return f"{image_id} " + json.dumps({"digests": digests, "labels": labels}) + "\n"


def test_what_docker_and_podman_say() -> None:
    docker = said("sha256:00", ["other/x@sha256:11", "ours@sha256:22"], {REVISION: "c0"})
    assert parse_image("ours:1", docker) == Image("ours:1", "sha256:00", "sha256:22", "c0")
    podman = said("00", ["host:5000/x@sha256:33"])
    assert parse_image("host:5000/x", podman) == Image("host:5000/x", "sha256:00", "sha256:33")
    assert parse_image("x", said("00", [])).digest is None
    assert parse_image("y@sha256:44", said("00", ["z@sha256:1", "y@sha256:44"])).digest == (
        "sha256:44"
    )


def test_the_search_path_that_an_image_sets() -> None:
    env = ["PATH=/bin", "PYTHONPATH=/a:/b=c"]
    told = '00 {"digests": [], "labels": {}, "env": %s}'
    image = parse_image("x", told % json.dumps(env))
    assert image.python_path == "/a:/b=c"
    assert "python_path" not in image.record()
    for other in (None, [], ["PATH=/bin"], {"a": 1}, [3]):
        assert parse_image("x", told % json.dumps(other)).python_path is None


@given(st.text(max_size=40).filter(lambda text: "{" not in text))
def test_garbage_is_no_image(text: str) -> None:
    with pytest.raises(ValueError):
        parse_image("x", text)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4))
def test_odd_values_are_missing(value: Any) -> None:
    image = parse_image("x", said("00", value, value))
    assert (image.id, image.digest, image.commit) == ("sha256:00", None, None)


@pytest.mark.parametrize(
    ("name", "built"),
    [
        ("x", "x:0123456789ab"),
        ("x:local", "x:local-0123456789ab"),
        ("host:5000/a/x", "host:5000/a/x:0123456789ab"),
    ],
)
def test_the_commit_is_in_the_tag(name: str, built: str) -> None:
    assert built_name(name, "0123456789abcdef") == built


def test_the_command_that_builds() -> None:
    container = Container.model_validate(
        {"image": "i", "build": {"repo": "/r", "file": "docker/File"}}
    )
    assert container.build is not None
    words = build_argv(["docker"], "i:c", container.build, "c", "/w/c")
    assert words == [
        "docker", "build", "--tag=i:c", "--file=/w/c/docker/File", f"--label={REVISION}=c", "/w/c",
    ]  # fmt: skip


class Shop(LocalNode):
    """A node whose runtime (simulated) has an image once a command has brought it."""

    def __init__(self, answers: Mapping[str, tuple[int, str]], *, has: bool = False) -> None:
        super().__init__("n1")
        self.answers = answers
        self.has = has
        self.ran: list[list[str]] = []

    def run(self, argv: Sequence[str], **keys: Any) -> Completed:
        self.ran.append(list(argv))
        word = argv[1]
        if word == "image":
            found = self.answers.get("image") or ((0, said("00")) if self.has else (1, ABSENT))
        else:
            found = self.answers[word]
            self.has = self.has or found == (0, "")
        code, text = found
        return Completed(tuple(argv), code, "" if code else text, text if code else "", 0.0)


def ensure(node: LocalNode, **keys: Any) -> Image:
    container = Container.model_validate({"image": "ours:1", **keys})
    return ensure_image(node, container, ["docker"], workdir="/w")


def test_an_image_that_is_there_is_not_fetched_again() -> None:
    node = Shop({}, has=True)
    assert ensure(node, pull="missing", load="/a.tar").id == "sha256:00"
    assert [argv[1] for argv in node.ran] == ["image"]


@pytest.mark.parametrize(
    ("keys", "ran"),
    [
        ({"pull": "missing"}, ["docker", "pull", "ours:1"]),
        ({"load": "/a.tar"}, ["docker", "load", "-i", "/a.tar"]),
        ({"load": "/a.tar", "pull": "missing"}, ["docker", "load", "-i", "/a.tar"]),
    ],
)
def test_a_missing_one_is_brought_as_the_campaign_says(
    keys: dict[str, Any], ran: list[str]
) -> None:
    node = Shop({"pull": (0, ""), "load": (0, "")})
    assert ensure(node, **keys).name == "ours:1"
    assert node.ran[1] == ran


def test_nothing_is_fetched_unasked() -> None:
    node = Shop({})
    with pytest.raises(LaunchError, match="not on the node") as error:
        ensure(node)
    assert "n1" in error.value.where
    assert len(node.ran) == 1


def test_a_runtime_that_does_not_answer_is_not_a_missing_image() -> None:
    node = Shop({"image": (1, "Cannot connect to the Docker daemon"), "pull": (0, "")})
    with pytest.raises(LaunchError, match="Cannot connect"):
        ensure(node, pull="missing")
    assert len(node.ran) == 1


def test_why_it_could_not_be_fetched_is_said() -> None:
    with pytest.raises(LaunchError, match="no route to the registry"):
        ensure(Shop({"pull": (1, "no route to the registry")}), pull="missing")


def test_an_archive_of_another_image_is_noticed() -> None:
    with pytest.raises(LaunchError, match="still not on the node"):
        ensure(Shop({"load": (0, "Loaded image: theirs:1")}), load="/a.tar")


def test_an_answer_that_is_none_is_an_error_in_words() -> None:
    with pytest.raises(LaunchError, match="not an image"):
        ensure(Shop({"image": (0, "??? []")}))


@pytest.mark.parametrize("repo", ["absent", "."])
def test_a_commit_that_is_not_there(tmp_path: Path, repo: str) -> None:
    with pytest.raises(ConfigError) as error:
        ensure(Shop({}), build={"repo": str(tmp_path / repo)})
    assert error.value.where == "server.container.build"


def test_looking_for_an_image_brings_nothing() -> None:
    node = Shop({"pull": (0, "")})
    container = Container(image="ours:1", pull="missing")
    assert find_image(node, container, ["docker"]) is None
    node.has = True
    assert find_image(node, container, ["docker"]) == Image("ours:1", "sha256:00")
    assert {argv[1] for argv in node.ran} == {"image"}


def test_drift_of_an_image() -> None:
    before = Image("x:1", "sha256:00", "sha256:aa").record()
    assert image_drift(before, Image("x:1", "sha256:00")) == []
    assert image_drift(before, Image("x:1", "sha256:01", "sha256:aa")) == []
    (text,) = image_drift(before, Image("x:1", "sha256:01", "sha256:bb"))
    assert "sha256:00" in text
    assert "sha256:01" in text
    assert image_drift(Image("x", "sha256:00").record(), Image("x", "sha256:01")) != []


def test_nodes_with_the_same_image() -> None:
    first = Image("x:1", "sha256:00", "sha256:aa")
    assert images_differ({}) == []
    assert images_differ({"a": first, "b": Image("x:1", "sha256:00")}) == []
    assert images_differ({"a": first, "b": Image("x:1", "sha256:01", "sha256:aa")}) == []
    (text,) = images_differ({"a": first, "b": first, "c": Image("x:1", "sha256:01")})
    assert text.startswith("c has x:1")
    built = [Image("x:c", f"sha256:0{n}", f"sha256:a{n}", "c0") for n in range(2)]
    assert images_differ({"a": built[0], "b": built[1]}) == []


def test_the_check_of_all_nodes_and_of_what_was_frozen() -> None:
    one, other = Image("x:1", "sha256:00"), Image("x:1", "sha256:01")
    good = check_images({"a": one, "b": one}, {"a": one.record(), "b": None})
    assert good.ok
    assert "a has x:1 (sha256:00)" in good.evidence
    assert check_images({"a": one, "b": other}, {}).ok is False
    changed = check_images({"a": other}, {"a": one.record()})
    assert changed.ok is False
    assert "sha256:00" in changed.evidence
    assert changed.remedy
