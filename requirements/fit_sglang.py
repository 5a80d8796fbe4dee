"""Fit SGLang's environment to a machine without a card: two things that its packages then miss.

torchvision, which SGLang imports for every model, is built for CUDA: with the CPU build of torch
its library does not load, and it then fails to describe two operators that only that library
declares. They are declared here, without code. Without its kernels for CPUs, SGLang takes an
operator from vLLM that it then does not call; its name is enough.

Usage: PYTHON requirements/fit_sglang.py, with the environment's own interpreter.
"""

import sysconfig
from pathlib import Path

DECLARED = """
if not _has_ops():
    _declared = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _declared.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""

packages = Path(sysconfig.get_path("purelib"))
extension = packages / "torchvision" / "extension.py"
text = extension.read_text(encoding="utf-8")
if DECLARED not in text:
    extension.write_text(text + DECLARED, encoding="utf-8")

vllm = packages / "vllm"
vllm.mkdir(exist_ok=True)
(vllm / "__init__.py").touch()
(vllm / "_custom_ops.py").write_text("rotary_embedding = None\n", encoding="utf-8")
