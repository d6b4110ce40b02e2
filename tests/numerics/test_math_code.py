"""What code the functions of mathematics become: whole vectors on CPUs, and no call of anything on any target."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.harness import assembly_of, entry_of
from truths import BINARY, UNARY

from einkorn.dsl import DType

REMAINDERS = ("fmod", "mod", "remainder")
KERNELS = Path(__file__).parent / "kernels_math.py"
SCALAR = re.compile(r"\bv(?:add|sub|mul|div|sqrt|max|min|fn?m(?:add|sub)\w*|round|ucomi|cvt\w*2)s[sd]\b")
OUTSIDE = re.compile(r"@(?:PLT|GOT)")  # a function or a variable of another library


def loops(asm: str) -> list[str]:
    """The blocks of assembly that jump back to their own start, up to that jump."""
    blocks = re.split(r"^(?=\.LBB\w+:)", asm, flags=re.MULTILINE)
    jumps = (re.match(rf"(?s).*\bj\w+\s+{re.escape(block.partition(':')[0])}\b", block) for block in blocks)
    return [each[0] for each in jumps if each]


# AVX2 has fewer instructions on vectors than AVX-512, for float64 most of all: there both dtypes are looked at, and on
# AVX-512 the one that has more of its own.
CODE = (("x86-64-v3", DType.float32), ("x86-64-v3", DType.float64), ("x86-64-v4", DType.float64))


@pytest.mark.parametrize("target, dtype", CODE)
@pytest.mark.parametrize("name", (*UNARY, *BINARY, *REMAINDERS))
def test_loops_become_vector_code(name: str, dtype: DType, target: str) -> None:
    inputs = [(dtype, (4096,))] * (1 if name in UNARY else 2)
    asm = assembly_of(entry_of(KERNELS, f"{name}_each", inputs)[0], target)
    assert not OUTSIDE.search(asm)
    width = 512 if target == "x86-64-v4" else 256
    actual = [block for block in loops(asm) if ("%zmm" if width == 512 else "%ymm") in block]
    assert actual
    for block in actual:
        assert not SCALAR.search(block) and "call" not in block, block
        assert not re.search(r"\bvp?(extr|insr)[bwdq]\b", block), block


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize("dtype", [DType.float32, DType.float64])
def test_gpu_code_has_no_calls_and_no_approximations(
    dtype: DType, target: str, compile_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    artifact, _ = compile_kernel(KERNELS, "everything", [(dtype, (256,))], target=target)
    lines = [line for line in artifact.asm.splitlines() if ".approx" in line or "call" in line.split()[:1]]
    assert not [line for line in lines if "ex2.approx.ftz.f32" not in line]  # of exp, within its bound
    assert bool(lines) == (target == "sm_80" and dtype is DType.float32)
    if target == "sm_80" and shutil.which("ptxas"):
        text = tmp_path / "everything.ptx"
        text.write_bytes(artifact.code)
        subprocess.run(["ptxas", "-arch=sm_80", str(text), "-o", str(tmp_path / "out")], check=True)
