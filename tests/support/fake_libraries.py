"""Makes the shared libraries that stand for a GPU's driver: their functions call whatever a process puts in a table.

`libcuda.so.1` exports `cuGetProcAddress_v2` alone, by which CUDA's users find everything else, and requests
`ek_resolve`. `libamdhip64.so` exports each function by its name; each jumps to its place in `ek_functions`. Both are
made by the project's own compiler and linker. So is what stands for NCCL.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from einkorn.compiler.codegen.llvm import compile_module
from einkorn.compiler.targets import host

_CUDA = """
@ek_resolve = global ptr null
define i32 @cuGetProcAddress_v2(ptr %name, ptr %out, i32 %version, i64 %flags, ptr %status) {
  %resolve = load ptr, ptr @ek_resolve
  %result = call i32 %resolve(ptr %name, ptr %out, i32 %version, i64 %flags, ptr %status)
  ret i32 %result
}
"""


def write_cuda(folder: Path) -> Path:
    """`libcuda.so.1` in a folder."""
    return _write(_CUDA, folder / "libcuda.so.1")


def write_hip(folder: Path, names: Sequence[str]) -> Path:
    """`libamdhip64.so` in a folder, with functions of these names."""
    return write_table(folder / "libamdhip64.so", names)


def write_table(path: Path, names: Sequence[str]) -> Path:
    """A library with functions of these names."""
    lines = [f"@ek_functions = global [{len(names)} x ptr] zeroinitializer"]
    for number, name in enumerate(names):
        place = f"getelementptr ([{len(names)} x ptr], ptr @ek_functions, i64 0, i64 {number})"
        lines.append(f"define i32 @{name}(...) {{")
        lines.append(f"  %f = load ptr, ptr {place}")
        lines.append("  %r = musttail call i32 (...) %f(...)\n  ret i32 %r\n}")
    return _write("\n".join(lines), path)


def _write(text: str, path: Path) -> Path:
    path.write_bytes(compile_module(text, host(), level=2).link(path.name))
    return path
