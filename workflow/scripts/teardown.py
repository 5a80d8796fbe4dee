"""Rule teardown: the server stopped, whatever started it."""

from pathlib import Path

from servemap.measure.setup import load_context
from servemap.scripting import rule_script, say
from servemap.server.launch.ending import stop_server

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        stopped = stop_server(load_context(snakemake.config), "teardown")
        say("server stopped" if stopped else "no server of this run is there")
