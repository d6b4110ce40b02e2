"""Constants keep their bits on the way from the bindings' LLVM to llvmlite's."""

from __future__ import annotations

import ctypes
import random
import time
from pathlib import Path

import pytest

from einkorn.compiler.codegen import llvm, mlir
from einkorn.compiler.codegen.llvm_versions import downgrade
from einkorn.compiler.targets import host
from einkorn.dsl.diagnostics.errors import InternalError

WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
MANTISSAS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def interesting_bits(dtype: str) -> list[int]:
    """Zeros, subnormals, infinities, quiet and signalling NaNs with payloads, the largest, and random ones."""
    width, mantissa = WIDTHS[dtype], MANTISSAS[dtype]
    sign, top = 1 << (width - 1), (1 << (width - 1)) - 1
    infinity = top >> mantissa << mantissa
    quiet = infinity | 1 << (mantissa - 1)
    one = infinity >> (mantissa + 1) << mantissa
    positive = [0, 1, 2, (1 << mantissa) - 1, 1 << mantissa, one, one + 1, infinity - 1, infinity]
    positive += [infinity | 1, quiet - 1, quiet, quiet | 1, quiet | 5, top]
    generator = random.Random(20)
    return [*positive, *(bits | sign for bits in positive), *(generator.getrandbits(width) for _ in range(300))]


def test_every_kind_of_constant_keeps_its_bits(tmp_path: Path) -> None:
    constants = [(dtype, bits) for dtype in WIDTHS for bits in interesting_bits(dtype)]
    body = "".join(
        f"%c{i} = llvm.mlir.constant(0x{bits:0{WIDTHS[dtype] // 4}X} : {dtype}) : {dtype}\n"
        f"%p{i} = llvm.getelementptr %p[{i}] : (!llvm.ptr) -> !llvm.ptr, i64\n"
        f"llvm.store %c{i}, %p{i} : {dtype}, !llvm.ptr\n"
        for i, (dtype, bits) in enumerate(constants)
    )
    text = mlir.lower_to_llvm(f"module {{ llvm.func @fill(%p: !llvm.ptr) {{ {body} llvm.return }} }}", host())
    assert "f0x" not in text and "qnan" not in text
    path = tmp_path / "fill.so"
    path.write_bytes(llvm.compile_module(text, host()).link())
    out = (ctypes.c_uint64 * len(constants))()
    ctypes.CDLL(str(path)).fill(out)
    wrong = [(dtype, hex(bits), hex(each)) for (dtype, bits), each in zip(constants, out, strict=True) if bits != each]
    assert not wrong


def test_vectors_and_aggregates_keep_their_bits(tmp_path: Path) -> None:
    text = mlir.lower_to_llvm(
        """
        module {
          llvm.mlir.global internal constant @table(dense<[0.1, 0x7FC00001, -0.3]> : tensor<3xf32>)
            : !llvm.array<3 x f32>
          llvm.func @fill(%p: !llvm.ptr, %q: !llvm.ptr) {
            %v = arith.constant dense<[0.1, 0x7F800001, 0xFF800000, 1.0]> : vector<4xf32>
            %w = arith.constant dense<0.1> : vector<4xf16>
            llvm.store %v, %p {alignment = 4 : i64} : vector<4xf32>, !llvm.ptr
            %t = llvm.mlir.addressof @table : !llvm.ptr
            %size = llvm.mlir.constant(12 : i64) : i64
            %p1 = llvm.getelementptr %p[16] : (!llvm.ptr) -> !llvm.ptr, i8
            "llvm.intr.memcpy"(%p1, %t, %size) <{isVolatile = false}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
            %p2 = llvm.getelementptr %p[28] : (!llvm.ptr) -> !llvm.ptr, i8
            llvm.store %w, %p2 {alignment = 4 : i64} : vector<4xf16>, !llvm.ptr
            llvm.return
          }
        }
        """,
        host(),
    )
    path = tmp_path / "fill.so"
    path.write_bytes(llvm.compile_module(text, host()).link())
    out = (ctypes.c_uint32 * 9)()
    ctypes.CDLL(str(path)).fill(out, None)
    floats = [0x3DCCCCCD, 0x7F800001, 0xFF800000, 0x3F800000, 0x3DCCCCCD, 0x7FC00001, 0xBE99999A]
    assert [hex(word) for word in out] == [hex(word) for word in [*floats, 0x2E662E66, 0x2E662E66]]


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("%2 = fadd float %1, 1.000000e-01", "%2 = fadd float %1, 0x3FB99999A0000000"),
        ("%2 = fadd float %1, 1.000000e+00", "%2 = fadd float %1, 1.000000e+00"),
        ("%2 = fadd double %1, 1.000000e-01", "%2 = fadd double %1, 1.000000e-01"),
        ("store half f0x3555, ptr %p", "store half 0xH3555, ptr %p"),
        ("store bfloat -inf, ptr %p", "store bfloat 0xRFF80, ptr %p"),
        ("ret double +snan(0x1)", "ret double 0x7FF0000000000001"),
        ("ret float -nan(0x1)", "ret float 0xFFF8000020000000"),
        ("fadd double %float, 1.000000e-01", "fadd double %float, 1.000000e-01"),
        ("fadd float %half, 1.000000e-01", "fadd float %half, 0x3FB99999A0000000"),
        ('!1 = !{!"float 1.000000e-01"} ; float 1.000000e-01', '!1 = !{!"float 1.000000e-01"} ; float 1.000000e-01'),
        ("phi float [ 1.000000e-01, %a ], [ %v0.5, %b ]", "phi float [ 0x3FB99999A0000000, %a ], [ %v0.5, %b ]"),
        ('{ "uniform-work-group-size" }', '{ "uniform-work-group-size"="true" }'),
    ],
)
def test_spellings(newer: str, older: str) -> None:
    assert downgrade(newer) == older


def test_other_types_are_refused() -> None:
    with pytest.raises(InternalError, match="fp128"):
        downgrade("ret fp128 f0x3FFF0000000000000000000000000000")


def test_the_translation_is_fast() -> None:
    lines = [f"  %{i + 1} = fadd float %{i}, {i / 10000 + 1e-5:e}, !dbg !{i}" for i in range(2000)]
    best = min(_seconds("\n".join(lines)) for _ in range(5))
    assert best < 0.1  # some 10 ms; the bound only catches what is far off


def _seconds(text: str) -> float:
    start = time.perf_counter()
    downgrade(text)
    return time.perf_counter() - start
