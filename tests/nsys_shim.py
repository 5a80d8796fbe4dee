"""A stand-in for Nsight Systems: sessions in a folder, and the ways in which the real one fails.

It behaves as nsys 2023.4 was seen to: a start that finds no session answers 0 and collects nothing,
a second start is refused, a stop without the importer leaves a .qdstrm file.
"""

import json
import sys
from pathlib import Path

_NSYS = """#!{python}
# servemap: simulated
import json, os, signal, subprocess, sys, time
state = {state!r}
how = json.load(open(state + "/how.json"))
words = sys.argv[1:]
given = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
name = given.get("session") or given.get("session-new") or ""
path = state + "/session-" + name
with open(state + "/calls", "a") as log:
    log.write(json.dumps(words) + "\\n")

def now():
    return open(path).read() if os.path.exists(path) else None

def put(text):
    open(path, "w").write(text)

if words == ["--version"]:
    sys.exit(print("NVIDIA Nsight Systems version " + how["version"]))
if words == ["launch", "--help"]:
    names = ", ".join("'%s'" % one for one in how["traces"])
    print("\\t-t, --trace=\\n\\n\\t   Possible values are", names)
    sys.exit(print("\\t   or 'none'.\\n\\t   Select the API(s) to trace."))
if words[0] == "sessions":
    print("              ID         TIME                       STATE LAUNCH NAME")
    for at, one in enumerate(sorted(os.listdir(state))):
        if one.startswith("session-"):
            said = open(state + "/" + one).read().split(" ")[0]
            print("%16d        00:01 %27s      1 %s" % (at + 7, said, one[8:]))
elif words[0] == "launch":
    put("Launched")
    # As the real one: its process stays, and ends the session with what it launched.
    first = next(at for at, word in enumerate(words[1:], 1) if not word.startswith("--"))
    server = subprocess.Popen(words[first:])
    open(state + "/server.pid", "w").write(str(server.pid))
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    code = server.wait()
    if os.path.exists(path):
        os.remove(path)
    sys.exit(code)
elif words[0] == "start":
    if how.get("start"):
        sys.exit(print(how["start"], file=sys.stderr) or 1)
    if how.get("kills"):
        os.kill(int(open(state + "/server.pid").read()), signal.SIGKILL)
        while now() is not None:
            time.sleep(0.01)
    if now() == "Launched" and not how.get("deaf"):
        put("Collection " + given["output"])
elif words[0] == "stop":
    if how.get("stop"):
        sys.exit(print(how["stop"], file=sys.stderr) or 1)
    output = now().split(" ", 1)[1]
    put("Launched")
    ending = how.get("ending", ".nsys-rep")
    if ending:
        open(output + ending, "w").write("report")
    print("Generated:\\n    " + output + ending)
elif words[0] == "cancel":
    if not how.get("stuck"):
        put("Launched")
elif words[0] == "shutdown":
    os.remove(path)
elif words[0] == "export":
    if how.get("export"):
        sys.exit(print(how["export"], file=sys.stderr) or 1)
    open(given["output"], "w").write("SQLite format 3 made")
"""

TRACES = ("cuda", "nvtx", "cublas", "osrt")


class Shim:
    """The stand-in in a folder, and what it does."""

    def __init__(self, folder: Path, **how: object) -> None:
        self.folder = folder / "nsys-state"
        self.folder.mkdir(parents=True)
        self.program = str(folder / "nsys")
        self.how: dict[str, object] = {"version": "2023.4.4.54-made", "traces": TRACES, **how}
        self.will()
        path = Path(self.program)
        path.write_text(_NSYS.format(python=sys.executable, state=str(self.folder)))
        path.chmod(0o755)

    def will(self, **how: object) -> None:
        """Change what it does from now on."""
        self.how.update(how)
        (self.folder / "how.json").write_text(json.dumps(self.how))

    def session(self, name: str, state: str) -> None:
        """Put a session there, as a launch would."""
        (self.folder / f"session-{name}").write_text(state)

    @property
    def sessions(self) -> dict[str, str]:
        """The state of each session."""
        found = self.folder.glob("session-*")
        return {path.name[8:]: path.read_text().split(" ")[0] for path in found}

    @property
    def calls(self) -> list[list[str]]:
        """The words of each call."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
