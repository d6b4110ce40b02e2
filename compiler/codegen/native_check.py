"""Checks what authors name themselves, in a process of its own: LLVM ends the process on instructions that it does not
know, and on intrinsics that a target does not have.

What passed once is not checked again in this process.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys

from ...dsl.diagnostics.errors import CompileError
from ...dsl.types.dtype import DType
from ..ir.native_opcodes import NATIVE, NATIVE_PURE
from ..ir.program import Op, PointerType, Program, Type, walk
from ..targets import lookup
from ..targets.base import Target
from . import llvm

# What the standard library uses for targets that have it: it need not be tried, which takes a process.
_OF_NVIDIA = ("ex2", "lg2", "sin", "cos", "sqrt", "rsqrt", "rcp")
_OF_AMD = ("exp2", "log", "sin", "cos", "sqrt", "rsq", "rcp", "fract")
OF_LIBRARY = frozenset(
    {
        "",
        *(f"llvm.nvvm.{name}.approx.ftz.f" for name in _OF_NVIDIA),
        "tanh.approx.f32 $0, $1;",
        *(f"llvm.amdgcn.{name}.f32" for name in _OF_AMD),
    }
)


def check_native(program: Program, target: Target) -> None:
    """Refuses instructions and intrinsics that LLVM does not take.

    Raises:
        CompileError: EK0911, with what LLVM says.
    """
    for function in program.functions:
        for op in walk(function.body):
            if op.opcode in (NATIVE, NATIVE_PURE) and op.attrs["kind"] != "call" and op.attrs["code"] not in OF_LIBRARY:
                problem = _problem(_module(op, target), target.name)
                if problem:
                    what = {"assembly": "instructions", "intrinsic": "intrinsic"}[op.attrs["kind"]]
                    text = f"LLVM does not take the {what} {op.attrs['code']!r} for {target.name}: {problem}"
                    raise CompileError(text, code="EK0911", place=op.location.place, got=op.attrs["code"])
                if op.attrs["kind"] == "intrinsic":
                    llvm.VETTED.add((target.name, op.attrs["code"]))


def called_functions(program: Program) -> set[str]:
    """The C functions that a program calls; the process has them."""
    ops = (op for function in program.functions for op in walk(function.body))
    return {op.attrs["code"] for op in ops if op.opcode in (NATIVE, NATIVE_PURE) and op.attrs["kind"] == "call"}


def _module(op: Op, target: Target) -> str:
    """A module with one function, which does it."""
    types = [_type(value.type, target) for value in op.operands]
    result = _type(op.results[0].type, target) if op.results else "void"
    given = ", ".join(f"{type} %a{k}" for k, type in enumerate(types))
    name, kind = op.attrs["code"], op.attrs["kind"]
    if kind == "assembly":
        effects = "sideeffect " if op.opcode is NATIVE else ""
        callee, declared = f'asm {effects}"{_escaped(name)}", "{_escaped(op.attrs["constraints"])}"', ""
    else:
        callee, declared = f"@{name}", f"declare {result} @{name}({', '.join(types)})\n"
    head = f'target triple = "{target.triple}"\ntarget datalayout = "{target.data_layout}"\n{declared}'
    value = "" if result == "void" else "%r = "
    back = "ret void" if result == "void" else f"ret {result} %r"
    return f"{head}define {result} @check({given}) {{\n  {value}call {result} {callee}({given})\n  {back}\n}}\n"


def _type(type: Type, target: Target) -> str:
    if isinstance(type, PointerType):
        number = target.spaces.number(type.space)
        return f"ptr addrspace({number})" if number else "ptr"
    dtype = type.dtype
    floats = {DType.float32: "float", DType.float64: "double"}
    element = "i1" if dtype is DType.bool else floats.get(dtype, f"i{dtype.bits}")
    return element if type.width == 1 else f"<{type.width} x {element}>"


def _escaped(text: str) -> str:
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())


@functools.cache
def _problem(module: str, target: str) -> str:
    """What LLVM says of a module; empty where it makes code of it."""
    command = [sys.executable, "-m", f"{__package__}.native_check", target]
    done = subprocess.run(command, input=module, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    said = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "LLVM ended")
    return said.removeprefix("<inline asm>:")[:300]


def main() -> None:
    """Makes code of the module on standard input, for the target that is named."""
    target, binding = lookup(sys.argv[1]), llvm.library()
    module = binding.parse_assembly(sys.stdin.read())
    module.verify()
    written = llvm.new_machine(target, 0).emit_assembly(module)
    for function in module.functions:  # what is not an intrinsic is called
        if function.is_declaration and re.search(re.escape(function.name).replace(r"\.", "(\\.|_\\$_|_)"), written):
            sys.exit(f"error: unknown intrinsic {function.name}")


if __name__ == "__main__":
    main()
