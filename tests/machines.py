"""Nodes that stand for other machines: a lease and a boot of their own, a link that breaks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from servemap.model.errors import ConnectionLostError
from servemap.nodes.base import Completed
from tests.fakes import FarNode

AS_ANOTHER_MACHINE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from onnode import __main__, hold
hold.machine_boot_id = lambda: sys.argv[2]
os.environ["SERVEMAP_LEASE_DIR"] = sys.argv[3]
sys.exit(__main__.main(sys.argv[4:]))
"""


class OtherMachine(FarNode):
    """A far node whose agent sees another boot id and another lease than this machine's."""

    def __init__(self, name: str, home: Path) -> None:
        super().__init__(name, home)
        self.lease_dir = home / "lease"
        self.boot_id = f"boot of {name}"
        self.cut = False
        self.closed = 0

    def agent_argv(self, *args: str) -> list[str]:
        python, agent, *rest = super().agent_argv(*args)
        if args[0] != "hold":
            return [python, agent, *rest]
        facts = [agent, self.boot_id, str(self.lease_dir)]
        return [python, "-c", AS_ANOTHER_MACHINE, *facts, *rest]

    def _link(self) -> None:
        if self.cut:
            raise ConnectionLostError(
                f"node {self.name} cannot be reached", f"node {self.name}", "see that it is up"
            )

    def state_dir(self) -> str:
        self._link()
        return super().state_dir()

    def read_text(self, remote: str) -> str | None:
        self._link()
        return super().read_text(remote)

    def write_text(self, remote: str, text: str) -> None:
        self._link()
        super().write_text(remote, text)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002
        cwd: str | None = None,
    ) -> Completed:
        self._link()
        return super().run(argv, timeout_s=timeout_s, env=env, input=input, cwd=cwd)

    def close(self) -> None:
        self.closed += 1
