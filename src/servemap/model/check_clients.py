"""What a campaign may say of load clients of others, and what cases may ask of them."""

from collections.abc import Iterator
from itertools import pairwise

from servemap.model.campaign import Campaign
from servemap.model.cases import FixedCase
from servemap.model.clients import CUTS_OPTIONS, OWN, OWN_OPTIONS, TIMES_REQUESTS, ClientSpec
from servemap.model.errors import ConfigError
from servemap.model.secret_names import is_secret_option, is_secret_variable


def check_clients(campaign: Campaign, cases: list[FixedCase]) -> None:
    """Refuse clients that hold a secret or could not be found, and cases that they cannot do.

    Args:
        campaign: the campaign.
        cases: its cases of a kind that may name a client.

    Raises:
        ConfigError: names the key and the remedy.
    """
    load_node = campaign.load_node or next(n.id for n in campaign.nodes if n.role == "head")
    far = any(node.id == load_node and node.transport != "local" for node in campaign.nodes)
    for name, client in campaign.clients.items():
        _check_client(name, client, far)
    for case in cases:
        if case.client != OWN:
            _check_case(campaign, case)


def _check_client(name: str, client: ClientSpec, far: bool) -> None:
    where = f"clients.{name}"
    for key, path in (("python", client.python), ("tokenizer", client.tokenizer)):
        if far and path is not None and not path.startswith("/"):
            raise ConfigError(
                f"{path!r} is relative, and the load runs on another machine",
                f"{where}.{key}",
                "give an absolute path on that node",
            )
    secret = [
        (key, f"{where}.env.{key}") for key, v in client.env.items() if is_secret_variable(key, v)
    ]
    secret += [
        (key, f"{where}.args") for key, v in _options(client.args) if is_secret_option(key, v)
    ]
    for key, place in secret:
        raise ConfigError(
            f"{key} looks like a secret, and its value stands in the campaign file",
            place,
            "remove it: the load clients are measured against servers that ask for no key",
        )
    for word in client.args:
        option = word.partition("=")[0]
        if _means_own(option, name):
            raise ConfigError(
                f"{option} is given by servemap itself, from the case",
                f"{where}.args",
                "remove it and change the case's own key",
            )


def _means_own(word: str, client: str) -> bool:
    """Whether a word is an option that is ours to give, however it is spelt."""
    own = OWN_OPTIONS[client]
    if word[:1] != "-" or word.strip("-") == "":
        return False
    if word[:2] != "--":
        return word[:2] in own
    option = word.replace("_", "-")
    return option in own or (client in CUTS_OPTIONS and any(one.startswith(option) for one in own))


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Return the NAME, VALUE of every --NAME=VALUE and --NAME VALUE."""
    for word, following in pairwise([*words, ""]):
        name, equals, value = word.lstrip("-").partition("=")
        if equals:
            yield name, value
        elif word.startswith("--") and not following.startswith("-"):
            yield name, following


def _check_case(campaign: Campaign, case: FixedCase) -> None:
    where = f"cases.{case.id}"
    if case.client not in campaign.clients:
        raise ConfigError(
            f"nothing says where the client {case.client!r} is",
            f"{where}.client",
            f"add it: clients: {{ {case.client}: {{ python: PATH }} }}",
        )
    if case.min_window_s:
        raise ConfigError(
            f"{case.client} cannot repeat waves until a window is long enough",
            f"{where}.min_window_s",
            "remove it and give num_prompts for the time that you want",
        )
    if case.fallback is not None:
        raise ConfigError(
            f"{case.client} does not tell the errors apart that a fallback is for",
            f"{where}.fallback",
            "remove it, or measure with the client servemap",
        )
    default = FixedCase.model_fields["request_timeout_s"].default
    if case.request_timeout_s != default and case.client not in TIMES_REQUESTS:
        raise ConfigError(
            f"{case.client} has no limit for the time of a request",
            f"{where}.request_timeout_s",
            "remove it: case_timeout_s ends the whole case",
        )
