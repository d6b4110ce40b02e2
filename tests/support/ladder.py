"""The rungs of docs/matmul-ladder.md, compiled."""

from __future__ import annotations

import re
from pathlib import Path

from einkorn.compiler.explorer.stage import choose_instance
from einkorn.compiler.instances import instance_entries
from einkorn.compiler.pipeline import Artifact, compile_entry
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_tool

PAGE = Path(__file__).resolve().parents[2] / "docs" / "matmul-ladder.md"
FILE = re.compile(r"^```python\n# kernels/(\w+)\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNGS = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))
HAS_TOOLS = find_tool("ptxas") is not None and find_tool("nvdisasm") is not None


def compiled(folder: Path, rung: str, target: str = "sm_90a") -> Artifact:
    """A rung for a target; its file lies in `folder`."""
    path = folder / f"{rung}.py"
    path.write_text(RUNGS[rung], encoding="utf-8")
    kernel, instance = choose_instance(str(path))
    return compile_entry(*instance_entries(kernel.portable, instance, lookup(target))[0])
