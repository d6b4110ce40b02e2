"""What comes out of each stage: the typed print, the author's lines, vector instructions, code for every target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernel_harness import KernelFile

from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import assemble, find_ptxas
from einkorn.dsl import DType

FILE = Path(__file__).parent / "emit_kernels.py"
F32 = DType.float32
TARGETS = ["sm_80", "sm_90a", "gfx942", "gfx1100"]


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(FILE)


def line_of(text: str) -> int:
    """Where the author wrote this."""
    lines = FILE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def check(text: str, *wanted: str) -> None:
    """Each of `wanted` (a pattern) is in the text, one after the other."""
    at = 0
    for pattern in wanted:
        actual = re.compile(pattern).search(text, at)
        assert actual is not None, f"{pattern!r} is not found after character {at} of\n{text}"
        at = actual.end()


def loop_body(assembly: str, instruction: str) -> str:
    """The block between two labels that holds the first `instruction`."""
    blocks = re.split(r"^\.LBB\w+:", assembly, flags=re.MULTILINE)
    return next(block for block in blocks if re.search(instruction, block))


# *** the typed program ***


def test_typed_print(kernels: KernelFile) -> None:
    text = kernels.compile("uses_helper", [(F32, (1000,))]).typed
    without_places = "\n".join(line.split("  # ")[0].rstrip() for line in text.splitlines())
    wanted = """\
func uses_helper_0(%b0: Pointer[float32, global], %b1: Pointer[float32, global]) {
  parallel 1000, GRAIN (%2: Int64, %3: Int64) {
    for %2, %3, 1 (%4: Int64) {
      %5 = load %b0, %4 : Float32
      %6 = mul %5, 2.0 : Float32
      %7 = add %6, 0.5 : Float32
      %8 = max %7, 0.0 : Float32
      store %8, %b1, %4
      yield
    }
    yield
  }
  yield
}
call uses_helper_0(buffer 0, buffer 1)"""
    assert re.sub(r"(parallel \d+), \d+", r"\1, GRAIN", without_places) == wanted


def test_typed_print_has_the_authors_places(kernels: KernelFile) -> None:
    text = kernels.compile("uses_helper", [(F32, (1000,))]).typed
    check(
        text,
        rf"mul .*emit_kernels\.py:{line_of('v * 2 + BIAS')}\n",
        rf"max .*emit_kernels\.py:{line_of('biased(x[i])')}\n",
    )


def test_an_index_of_two_axes_costs_no_division(kernels: KernelFile) -> None:
    text = kernels.compile("two_axes", [(F32, (30, 40)), (F32, (40,))]).typed
    inner = text[text.rindex("for ") : text.index("store")]
    assert "div" not in inner and "rem" not in inner


def test_mlir_is_structured(kernels: KernelFile) -> None:
    text = kernels.compile("collatz", [(DType.int64, (100,))]).mlir
    check(text, r"llvm\.func internal @body_0", r"scf\.for", r"scf\.while", r"scf\.condition", r"llvm\.func @ek_entry")


# *** machine code for CPUs ***


def test_lines_of_the_source_are_in_the_assembly(kernels: KernelFile) -> None:
    assembly = kernels.compile("uses_helper", [(F32, (1000,))], target="x86-64-v3").asm
    file = re.search(r'\.file\s+(\d+) .*"emit_kernels\.py"', assembly)
    assert file is not None
    body = loop_body(assembly, r"vaddps.*ymm")
    for text in ("v * 2 + BIAS", "biased(x[i])"):
        assert re.search(rf"\.loc\s+{file[1]} {line_of(text)} \d+", body), (text, body)


@pytest.mark.parametrize(
    ("dtype", "instruction"),
    [
        (DType.float32, r"vmulps.*%ymm"),
        (DType.float64, r"vmulpd.*%ymm"),
        (DType.int32, r"vp(mulld|addd).*%ymm"),
        (DType.int16, r"vp(mullw|addw).*%ymm"),
        (DType.float16, r"vcvtph2ps.*%ymm"),
        (DType.bfloat16, r"vmulps.*%ymm"),
    ],
    ids=str,
)
def test_elementwise_loops_are_vectors(kernels: KernelFile, dtype: DType, instruction: str) -> None:
    assembly = kernels.compile("scaled", [(dtype, (4096,))], target="x86-64-v3").asm
    body = loop_body(assembly, instruction)
    assert "call" not in body
    assert re.search(r"\bv(mov[ud]|cvtps2ph)\w*\s.*%[xy]mm\d+, -?\d*\(", body)  # whole vectors are stored


def test_rows_are_vectors(kernels: KernelFile) -> None:
    assembly = kernels.compile("two_axes", [(F32, (64, 512)), (F32, (512,))], target="x86-64-v3").asm
    assert "idiv" not in loop_body(assembly, r"vaddps.*%ymm")


def test_nothing_is_contracted_unless_requested(kernels: KernelFile) -> None:
    types = [(F32, (4096,))] * 2
    assert "fma" not in kernels.compile("plain", types, target="x86-64-v3").asm.replace("llvm.fma", "")
    assert "vfmadd" in kernels.compile("contracted", types, target="x86-64-v3").asm
    assert "vfmadd" in kernels.compile("fused", types, target="x86-64-v3").asm


def test_bfloat16_is_compiled_without_library_calls(kernels: KernelFile) -> None:
    assembly = kernels.compile("fused", [(DType.bfloat16, (100,))] * 2, target="x86-64-v3").asm
    assert "__trunc" not in assembly and "__extend" not in assembly


# *** machine code for GPUs ***


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["uses_helper", "two_axes", "launched", "contracted", "collatz", "counts"])
def test_kernels_compile_for_gpus(kernels: KernelFile, op: str, target: str) -> None:
    types = {
        "uses_helper": [(F32, (1000,))],
        "two_axes": [(F32, (30, 40)), (F32, (40,))],
        "launched": [(F32, (1000,))] * 2,
        "contracted": [(DType.float16, (1000,))] * 2,
        "collatz": [(DType.int64, (1000,))],
        "counts": [(DType.int64, (1000,))],
    }[op]
    outs = [(DType.int32, (8,))] if op == "counts" else None
    artifact = kernels.compile(op, types, target=target, outs=outs)
    assert len(artifact.kernels) == 1
    kernel = artifact.kernels[0]
    assert kernel.symbol in artifact.asm
    assert kernel.block == ((128, 1, 1) if op == "launched" else (256, 1, 1))
    if target.startswith("sm_"):
        assert f".target {target}" in artifact.asm and f".visible .entry {kernel.symbol}(" in artifact.asm
        if find_ptxas() is not None:
            assert assemble(artifact.code.decode(), lookup(target))[:4] == b"\x7fELF"
    else:
        assert artifact.code[:4] == b"\x7fELF" and f"{kernel.symbol}.kd".encode() in artifact.code


def test_ptx_of_a_launch(kernels: KernelFile) -> None:
    text = kernels.compile("launched", [(F32, (1000,))] * 2, target="sm_80", block=64).asm
    check(text, r"\.reqntid 64, 1, 1", r"%ctaid\.x", r"setp", r"ld\.global", r"add\.rn\.f32", r"st\.global", r"ret;")
    assert re.search(rf"\.loc\s+\d+ {line_of('out[i] = x[i] + y[i]')} \d+", text)
    assert "emit_kernels.py" in text


def test_contraction_on_gpus(kernels: KernelFile) -> None:
    types = [(F32, (1000,))] * 2
    assert "fma.rn" not in kernels.compile("plain", types, target="sm_90a").asm
    assert "fma.rn.f32" in kernels.compile("contracted", types, target="sm_90a").asm
    assert not re.search(r"v_(fma|fmac|mad)", kernels.compile("plain", types, target="gfx942").asm)
    assert re.search(r"v_(pk_)?(fma|fmac)", kernels.compile("contracted", types, target="gfx942").asm)
