"""Rule unpatch: every original byte back in place, with proof."""

from pathlib import Path

from servemap.measure.setup import load_context
from servemap.scripting import rule_script, say
from servemap.server.launch.patch_stage import unpatch

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        for node, proof in unpatch(load_context(snakemake.config)).items():
            for item in proof["files"]:
                say(f"{node}: {item['path']} restored, sha256 {item['sha256']}")
