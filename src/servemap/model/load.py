"""Reading a campaign: YAML without duplicate keys, overlays, inventory, errors with a remedy."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from servemap.model.campaign import Campaign
from servemap.model.errors import ConfigError
from servemap.model.files import regular
from servemap.model.wording import say_problems


class _UniqueKeys(yaml.SafeLoader):
    """A loader that refuses a mapping with the same key twice, which YAML forbids."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(
                    "a key is a list or a mapping",
                    f"{key_node.start_mark.name}, line {key_node.start_mark.line + 1}",
                    "give text as the key",
                )
            if key_node.value in seen:
                raise ConfigError(
                    f"key {key_node.value!r} is given twice",
                    f"{key_node.start_mark.name}, line {key_node.start_mark.line + 1}",
                    "keep one of the two",
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML file's mapping.

    Raises:
        ConfigError: the file cannot be read, is not YAML, is no mapping, or repeats a key.
    """
    try:
        with open(path, encoding="utf-8", opener=regular) as handle:
            data = yaml.load(handle, Loader=_UniqueKeys)
        circular = _is_circular(data, set(), set())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the file: {error}", str(path), "give the path of a campaign file"
        ) from error
    except RecursionError as error:
        raise ConfigError(
            "the file is nested too deeply", str(path), "a campaign file has a few levels"
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            f"not valid YAML: {error}", str(path), "mend the file at the place that is named"
        ) from error
    if circular:
        raise ConfigError(
            "an anchor holds itself", str(path), "write out what the alias stands for"
        )
    if not isinstance(data, dict):
        raise ConfigError("the file holds no mapping", str(path), "start from config/config.yaml")
    return data


def _is_circular(value: Any, above: set[int], done: set[int]) -> bool:
    """Return whether a list or mapping is part of itself; `done` are those that are not."""
    if not isinstance(value, dict | list) or id(value) in done:
        return False
    if id(value) in above:
        return True
    above.add(id(value))
    below = value.values() if isinstance(value, dict) else value
    if any(_is_circular(item, above, done) for item in below):
        return True
    above.remove(id(value))
    done.add(id(value))
    return False


def assemble(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with what it `extends:` below it and its `inventory:` filled in.

    An overlay replaces lists whole and merges mappings key by key. Paths are relative to the
    working directory.

    Raises:
        ConfigError: a file is missing, the chain of `extends` goes in a circle, or the overlay
            has no `run` of its own and would work in the other campaign's results.
    """
    if config.get("extends") and not config.get("run"):
        raise ConfigError(
            f"the campaign that extends {config['extends']!r} has no name of its own",
            "run",
            "name the run: its results lie apart from those of the campaign that it extends",
        )
    merged = dict(config)
    seen: list[str] = []
    while (parent := merged.get("extends")) is not None:
        if parent in seen:
            raise ConfigError(f"{parent!r} extends itself", "extends", "break the circle")
        seen.append(parent)
        base = read_yaml(Path(parent))
        merged = _overlay(base, {k: v for k, v in merged.items() if k != "extends"})
        if "extends" not in base:
            merged.pop("extends", None)
    if merged.get("inventory") and "nodes" not in merged:
        inventory = read_yaml(Path(merged["inventory"]))
        unknown = sorted(set(inventory) - {"nodes"})
        if unknown:
            raise ConfigError(
                f"unknown key {unknown[0]!r}", merged["inventory"], "an inventory holds only nodes"
            )
        merged["nodes"] = inventory.get("nodes")
    return merged


def _overlay(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    merged = dict(base)
    for key, value in over.items():
        merged[key] = _overlay(base[key], value) if key in base else value
    return merged


def parse_campaign(config: dict[str, Any], where: str = "configuration") -> Campaign:
    """Return the validated campaign of an assembled configuration.

    Raises:
        ConfigError: names the first key that is wrong, its value and the remedy.
    """
    try:
        return Campaign.model_validate(config)
    except ValidationError as error:
        raise _readable(error, where, config) from error


def load_campaign(path: Path) -> Campaign:
    """Return the validated campaign of a file (the keys alone; `checks.check` does the rest)."""
    return parse_campaign(assemble(read_yaml(path)), str(path))


def _readable(error: ValidationError, where: str, config: dict[str, Any]) -> ConfigError:
    problems = say_problems(error.errors(), data=config, model=Campaign)
    lines = [line for _, line, _ in problems[:5]]
    if len(problems) > 5:
        lines.append(f"and {len(problems) - 5} more")
    key, _, remedy = problems[0]
    return ConfigError("; ".join(lines), f"{where}, key {key}", remedy)
