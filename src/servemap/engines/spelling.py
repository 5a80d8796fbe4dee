"""From a campaign's settings to an engine's options, and from options back to settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servemap.engines.base import flags
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ModelSpec, ServerSpec


@dataclass(frozen=True)
class Spelling:
    """How an engine spells the settings.

    Attributes:
        values: setting -> option that takes its value.
        switches: setting -> (options for true, options for false); an empty one is the engine's
            own behaviour, which no option turns on.
        own: option -> key of the campaign that it is always set from.
    """

    values: Mapping[str, str]
    switches: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]
    own: Mapping[str, str]

    def refuse(self, server: ServerSpec) -> None:
        """Refuse free arguments that another key of the campaign already sets.

        Raises:
            ConfigError: names the key.
        """
        settings = server.settings.model_dump(exclude_none=True)
        for name, value in server.args.items():
            option = option_name(name)
            key = self.own.get(option) or self._setting(option, value, settings)
            if key is not None:
                raise ConfigError(
                    f"the argument {name} is set from another key of the campaign",
                    f"server.args.{name}",
                    f"use {key}",
                )

    def _setting(self, option: str, value: Any, settings: Mapping[str, Any]) -> str | None:
        for key, given in settings.items():
            mine, other = self.switches.get(key, ({}, {}))[:: 1 if given else -1]
            plain = option.removeprefix("no-")
            if option == self.values.get(key) or plain in mine or other.get(option) == value:
                return f"server.settings.{key}"
        return None

    def words(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the options of the given settings, in the table's order.

        Raises:
            ConfigError: the engine has no such setting.
        """
        given: dict[str, Any] = {}
        for key, option in self.values.items():
            if key in settings:
                given[option] = settings[key]
        for key, (on, off) in self.switches.items():
            if key in settings:
                given |= on if settings[key] else off
        for key in settings:
            if key not in self.values and key not in self.switches:
                raise ConfigError(
                    f"the engine has no setting {key}",
                    f"server.settings.{key}",
                    f"remove it; it has {', '.join(sorted([*self.values, *self.switches]))}",
                )
        return flags(given)

    def asked(self, server: ServerSpec, model: ModelSpec) -> dict[str, Any]:
        """Return the settings that a server's command line asks for, free arguments included."""
        found: dict[str, Any] = {"context": model.context}
        args = {option_name(name): value for name, value in server.args.items()}
        for key, option in self.values.items():
            if option in args:
                found[key] = args[option]
        for key, sides in self.switches.items():
            for words, means in zip(sides, (True, False), strict=True):
                if words and all(args.get(option) == value for option, value in words.items()):
                    found[key] = means
        return found | server.settings.model_dump(exclude_none=True)


def option_name(name: str) -> str:
    """Return a free argument's name as the command line has it, without the dashes before it."""
    return name.lstrip("-").replace("_", "-")


def with_default(server: ServerSpec, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wanted options, without those that the spec's arguments give or deny."""
    args = {option_name(name).removeprefix("no-") for name in server.args}
    return {option: value for option, value in wanted.items() if option not in args}


def check_even(nodes: int, processes: int, spelled: str) -> None:
    """Refuse nodes that cannot have the same number of processes each.

    Args:
        nodes: how many nodes the server has.
        processes: how many processes, one a card, hold the model.
        spelled: what that number is made of, for the message.

    Raises:
        ConfigError: the one is no multiple of the other.
    """
    if processes % nodes:
        raise ConfigError(
            f"{spelled} is {processes}, which {nodes} nodes cannot share evenly",
            "server.topology",
            f"choose sizes whose product is a multiple of {nodes}, or other server.nodes",
        )
