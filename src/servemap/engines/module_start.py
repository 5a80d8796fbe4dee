"""Starting a Python module so that its log says which copy of its package was imported."""

from servemap.engines.base import last_json_line
from servemap.model.server_spec import Package

MARK = "servemap: starting "

# `-c` looks in the start folder first, as `-m` does, and run_module gives the module the name
# `__main__` and its specification, so that processes which it spawns find it again.
_START = """\
import json, os, runpy, {package}
print({mark!r} + json.dumps({{"module": os.path.abspath({package}.__file__)}}), flush=True)
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def python_module(python: str, module: str, package: Package | None) -> list[str]:
    """Return the words that run a module, saying its package's file where one is named."""
    if package is None:
        return [python, "-m", module]
    return [python, "-c", _START.format(package=package.name, mark=MARK, module=module)]


def module_path(log_text: str) -> str | None:
    """Return the file that the log says the package was imported from."""
    found = last_json_line(log_text, MARK).get("module")
    return found if isinstance(found, str) else None
