"""Nodes of other machines without ssh: this machine driven as one, with a link that breaks."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from servemap.model.errors import ConnectionLostError
from servemap.nodes.base import Completed, Exchange, Fetched, ProcessId
from tests.fakes import FarNode


class FlakyNode(FarNode):
    """A far node whose connection is lost for a number of calls, or for as long as a test says."""

    def __init__(self, name: str, home: Path) -> None:
        super().__init__(name, home)
        self.lost = 0
        self.calls: list[str] = []
        self.is_away: Callable[[str], bool] = lambda call: False
        self.env: dict[str, str] = {}
        self.started: list[tuple[list[str], ProcessId]] = []
        self.after_spawn: Callable[[str], None] = lambda program: None

    def away_for(self, calls: int) -> None:
        """Lose the connection for the next calls."""
        end = self.lost + calls
        self.is_away = lambda call: self.lost < end

    def _reach(self, call: str) -> None:
        self.calls.append(call)
        if self.is_away(call):
            self.lost += 1
            raise ConnectionLostError("no route to host", f"node {self.name}", "plug it in")

    def state_dir(self) -> str:
        self._reach("state_dir")
        return super().state_dir()

    def run(self, argv: Sequence[str], **more: Any) -> Completed:
        self._reach("run")
        return super().run(argv, **more)

    def read_text(self, remote: str) -> str | None:
        self._reach("read_text")
        return super().read_text(remote)

    def write_text(self, remote: str, text: str) -> None:
        self._reach("write_text")
        super().write_text(remote, text)

    def fetch(self, remote: str, local: Path, *, max_bytes: int | None = None) -> list[Fetched]:
        self._reach("fetch")
        return super().fetch(remote, local, max_bytes=max_bytes)

    def exchange(self, argv: Sequence[str], lines: Sequence[str]) -> list[Exchange]:
        self._reach("exchange")
        with_env = ["env", *(f"{name}={value}" for name, value in self.env.items()), *argv]
        return super().exchange(with_env, lines)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> ProcessId:
        self._reach("spawn")
        process = super().spawn(argv, log=log, env={**self.env, **(env or {})}, cwd=cwd)
        self.started.append((list(argv), process))
        self.after_spawn(argv[2])
        return process

    def process(self, program: str) -> ProcessId:
        """Return the process of the program of the agent that was started last."""
        return [process for argv, process in self.started if argv[2] == program][-1]

    def end_all(self) -> None:
        """End what a test left behind."""
        self.is_away = lambda call: False
        for _, process in self.started:
            super().stop(process, 0)

    def alive(self, process: ProcessId) -> bool:
        self._reach("alive")
        return super().alive(process)

    def stop(self, process: ProcessId, grace_s: float) -> bool:
        self._reach("stop")
        return super().stop(process, grace_s)
