"""The same input gives the same bytes in any process; digests cover meaning and nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_harness import HERE, KernelFile

from einkorn.dsl import DType
from einkorn.dsl.package.library import load_library

FILE = Path(__file__).parent / "emit_kernels.py"
OPS = ["uses_helper", "two_axes", "collatz"]

SCRIPT = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {str(Path(__file__).parent)!r}]
from test_emit_determinism import hashes
print("\\n".join(hashes()))
"""


def hashes() -> list[str]:
    """Hashes of all that a compilation makes, for some ops and targets."""
    kernels = KernelFile(FILE)
    types = {
        "uses_helper": [(DType.float32, (1000,))],
        "two_axes": [(DType.float64, (30, 40)), (DType.float64, (40,))],
        "collatz": [(DType.int64, (99,))],
    }
    collected = []
    for op in OPS:
        for target in ("x86-64-v3", "sm_80", "gfx1100"):
            made = kernels.compile(op, types[op], target=target)
            for part in (made.typed.encode(), made.mlir.encode(), made.code):
                collected.append(hashlib.sha256(part).hexdigest())
        collected.append(kernels.library.kernels[op].portable.digest)
    return collected


def test_the_same_bytes_in_every_process() -> None:
    here = hashes()
    assert hashes() == here
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == here


def test_code_does_not_depend_on_what_was_compiled_before() -> None:
    types = [(DType.float32, (1000,))]
    first = KernelFile(FILE).compile("uses_helper", types, target="x86-64-v3").code
    kernels = KernelFile(FILE)
    kernels.compile("collatz", [(DType.int64, (9,))], target="sm_80")
    kernels.compile("scaled", types, target="x86-64-v3")
    assert kernels.compile("uses_helper", types, target="x86-64-v3").code == first


# *** digests ***

KERNEL = '''
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, max, register
from helpers_{tag} import floor_at

OFFSET = {offset}
TABLE = {table}
unused = 5

{comment}
def helper(v, gain=2.0):
    """A helper."""
    return v * gain + OFFSET

{blank}
@register("digested"{options})
def digested(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, level: int = {level}) -> None:
    """{doc}"""
    {inner}
    foreach(out, lambda i: floor_at(helper(x[i]), TABLE[level]))
'''
HELPERS = """
from einkorn.dsl import max
LOWEST = {lowest}
def floor_at(v, low):
    return max(v, low + LOWEST)
"""
USUAL = {
    "offset": "0.5",
    "table": "(1, 2, 3)",
    "comment": "",
    "blank": "",
    "options": "",
    "level": "0",
    "doc": "Text.",
    "inner": "",
    "lowest": "0",
}


def digest(folder: Path, tag: str, **changes: str) -> str:
    folder.mkdir(exist_ok=True)
    text = {**USUAL, **changes, "tag": tag}
    (folder / f"helpers_{tag}.py").write_text(HELPERS.format(**text))
    file = folder / f"kernel_{tag}.py"
    file.write_text(KERNEL.format(**text))
    return load_library(file).kernels["digested"].portable.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"comment": "# a comment"},
        {"blank": "\n\n\n\n"},
        {"doc": "Other words."},
        {"comment": "unused = 6\ndef not_called(v):\n    return v\n"},
        {"table": "(1,  2,\n 3)"},
        {"offset": "1 / 2"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_text_without_meaning_leaves_the_digest(tmp_path: Path, changes: dict[str, str]) -> None:
    tag = f"same_{abs(hash(str(changes)))}"
    before = digest(tmp_path / "a", f"{tag}_a")
    after = digest(tmp_path / "b", f"{tag}_b", **changes)
    assert after == before


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": "0.25"},
        {"offset": "-0.0"},
        {"table": "(1, 2, 4)"},
        {"table": "(1, 2, 3.0)"},
        {"table": "(True, 2, 3)"},
        {"lowest": "1"},
        {"level": "1"},
        {"options": ", fuse=False"},
        {"options": ', fastmath={"contract"}'},
        {"inner": "x[0]"},
    ],
    ids=str,
)
def test_a_change_of_meaning_changes_the_digest(tmp_path: Path, changes: dict[str, str]) -> None:
    tag = f"other_{abs(hash(str(changes)))}"
    before = digest(tmp_path / "a", f"{tag}_a")
    assert digest(tmp_path / "b", f"{tag}_b", **changes) != before


def test_digests_distinguish_zeros(tmp_path: Path) -> None:
    actual = {
        digest(tmp_path / "z", f"zero_{k}", offset=text)
        for k, text in enumerate(["0", "0.0", "-0.0", "False", "float('nan')", "float('inf')"])
    }
    assert len(actual) == 6
