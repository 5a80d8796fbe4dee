"""A made-up node and campaign, for tests of what drives a server without starting one."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from servemap.measure.setup import load_context
from servemap.nodes.base import Completed, Fetched, ProcessId
from servemap.nodes.local import LocalNode
from servemap.server.context import Context
from servemap.server.launch.exits import BOOT_ID

BOOT = "machine-boot"


def campaign(**keys: Any) -> dict[str, Any]:
    """Two variants, one case, one baseline on one node."""
    base: dict[str, Any] = {
        "run": "r",
        "nodes": [{"id": "n1", "env": {"NODE_SAYS": "hello"}}],
        "model": {"name": "tiny", "path": "model.gguf", "context": 2048, "vocab": [300, 1000]},
        "server": {"engine": "llamacpp", "port": 18999},
        "variables": [{"id": "slots", "keys": ["settings.max_active"]}],
        "variants": [
            {"id": "baseline"},
            {"id": "few", "variable": "slots", "set": {"settings.max_active": 2}},
        ],
        "cases": [{"id": "c", "isl": 64, "osl": 8, "concurrency": 1}],
        "baselines": [{"id": "net", "kind": "tcp", "pings": 10, "seconds": 0.1}],
        "phases": [{"id": "phase1", "baselines": ["net"], "cases": ["c"]}],
        "policy": {"stop_grace_s": 0.1},
    }
    return {**base, **keys}


class FakeNode(LocalNode):
    """Keeps real files; programs only pretend to run, and do what a test says they do."""

    def __init__(self, name: str = "n1") -> None:
        super().__init__(name)
        self.spawned: list[tuple[str, list[str], dict[str, str]]] = []
        self.stopped: list[ProcessId] = []
        self.living: set[ProcessId] = set()
        self.stubborn: set[ProcessId] = set()
        self.on_spawn: dict[str, Callable[[list[str], ProcessId], None]] = {
            "supervise": self.supervise
        }
        self.on_run: dict[str, Callable[[list[str]], str]] = {
            "sweep": lambda argv: "{}",
            "segments": lambda argv: "{}",
            "-Pk": lambda argv: "",
            "-d": lambda argv: "",
            "-L": lambda argv: str(Path(argv[-1]).stat().st_size),
            "-c": lambda argv: "[]",
            "/proc/loadavg": lambda argv: "0.50 0.25 0.10 1/99 1234\n",
            "patch": lambda argv: (
                '{"ok": true, "changed": false, "patches": {}, "order": [], "others": []}'
            ),
        }
        self.facts: dict[str, Any] = {"kernel": {"release": "6.1"}}
        self.server_log = "engine says hello\n"
        self.on_run["facts"] = lambda argv: json.dumps(self.facts)
        self.boot = BOOT
        self._next = 100

    def agent_argv(self, *args: str) -> list[str]:
        return ["agent", *args]

    def new_process(self) -> ProcessId:
        self._next += 1
        process = ProcessId(self._next, self._next, BOOT)
        self.living.add(process)
        return process

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> ProcessId:
        process = self.new_process()
        self.spawned.append((argv[1], list(argv), dict(env or {})))
        if argv[1] in self.on_spawn:
            self.on_spawn[argv[1]](list(argv), process)
        return process

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002
        cwd: str | None = None,
    ) -> Completed:
        return Completed(tuple(argv), 0, self.on_run[argv[1]](list(argv)), "", 0.0)

    def read_text(self, remote: str) -> str | None:
        return f"{self.boot}\n" if remote == BOOT_ID else super().read_text(remote)

    def alive(self, process: ProcessId) -> bool:
        return process in self.living

    def stop(self, process: ProcessId, grace_s: float) -> bool:
        self.stopped.append(process)
        if process in self.stubborn:
            return False
        self.living.discard(process)
        return True

    def supervise(self, argv: list[str], process: ProcessId) -> None:
        """Do what the supervisor does first: start the server, write the state and its log."""
        spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
        self.server = self.new_process()
        Path(spec["log"]).write_text(self.server_log)
        self.state_path = Path(spec["state"])
        self.state = {
            "schema": 1,
            "machine_boot_id": BOOT,
            "server": {"pid": self.server.pid, "start": self.server.start},
            "exit": None,
        }
        self.state_path.write_text(json.dumps(self.state))
        self.supervisor = process

    def server_dies(self, **end: Any) -> None:
        """The server ends; the supervisor notes how and is gone too."""
        self.living -= {self.server, self.supervisor}
        self.state_path.write_text(json.dumps({**self.state, "exit": {"reason": "exited", **end}}))

    def starts(self, program: str = "supervise") -> int:
        return sum(name == program for name, _, _ in self.spawned)


class FarNode(LocalNode):
    """This machine, driven as if it were another one: its files are not ours."""

    def __init__(self, name: str, home: Path) -> None:
        super().__init__(name, agent_dir=home / "agent")
        self._home = home

    @property
    def here(self) -> bool:
        return False

    def state_dir(self) -> str:
        return str(self._home / "state")

    def fetch(self, remote: str, local: Path, *, max_bytes: int | None = None) -> list[Fetched]:
        found = super().fetch(remote, Path(remote), max_bytes=max_bytes)
        for item in found:
            self.get(f"{remote}/{item.path}", local / item.path)
        return found


def two_nodes(**keys: Any) -> dict[str, Any]:
    """The campaign with its server on a head and a worker."""
    nodes = [
        {"id": "n1", "address": "192.0.2.1", "env": {"NODE_SAYS": "hello"}},
        {"id": "n2", "role": "worker", "address": "192.0.2.2", "env": {"NODE_SAYS": "good day"}},
    ]
    server = {"engine": "llamacpp", "port": 18999, "nodes": ["n1", "n2"], **keys}
    return campaign(nodes=nodes, server=server)


def fake_context(
    node: FakeNode, config: dict[str, Any], session: str = "s1", *, others: Sequence[FakeNode] = ()
) -> Context:
    """Return a context whose nodes are made-up ones, in a session of that id."""
    context = load_context(config)
    context.__dict__["nodes"] = {one.name: one for one in (node, *others)}
    context.run_dir.mkdir(parents=True, exist_ok=True)
    (context.run_dir / ".session.json").write_text(json.dumps({"session": session}))
    return context


def everything_written(folder: Path) -> str:
    """Return the text of every file below a folder, names included."""
    return "\n".join(
        f"{path}\n{path.read_text(errors='replace')}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )
