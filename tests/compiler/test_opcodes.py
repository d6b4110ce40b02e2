"""The records of operations: every phase has each of them, and the verifier refuses what they do not say.

The verifier is tried with mutants: an operation of a compiled kernel, of which one part is broken.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from kernel_harness import KernelFile

from einkorn.compiler.interpreter.machine import EVALUATORS
from einkorn.compiler.interpreter.translate import ENDS, STRUCTURED
from einkorn.compiler.ir.builder import Builder
from einkorn.compiler.ir.opcodes import IRREGULAR, LAUNCH, OPCODES, YIELD
from einkorn.compiler.ir.operations import ROWS
from einkorn.compiler.ir.program import (
    Op,
    Opcode,
    PointerType,
    Program,
    ProgramFunction,
    Region,
    Site,
    Value,
    free_values,
    walk,
)
from einkorn.compiler.ir.verifier import verify_program
from einkorn.compiler.lowering import module as families
from einkorn.compiler.lowering.writer import EMITTERS
from einkorn.compiler.passes.host_and_device import host_half
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import InternalError
from einkorn.dsl.types.dtype import BOOL, INT, SIMDType

COMPILER = Path(__file__).parents[2] / "compiler"
F32, I64 = DType.float32, DType.int64
KERNELS: list[tuple[str, str, list[tuple[DType, tuple[int, ...]]]]] = [
    ("host", "scalars", [(F32, (1000,)), (I64, (70, 3))]),
    ("host", "memory", [(F32, (50, 16)), (DType.bool, (50, 8)), (I64, (50, 8))]),
    ("host", "nibbles", [(DType.int4, (101,))]),
    ("host", "lanes", [(F32, (50, 8)), (DType.int32, (50, 8))]),
    ("host", "counters", [(DType.int32, (50,)), (DType.int32, (50,))]),
    ("host", "native", [(DType.int32, (50,))]),
    ("host", "between_ranks", [(DType.int32, (50,))]),
    ("sm_90", "grid", [(F32, (50,))]),
    ("sm_90", "rows", [(F32, (50,))]),
    ("sm_90", "wide", [(F32, (20000,))]),
    ("sm_90", "matrices", [(DType.bfloat16, (32, 64))]),
    ("sm_90a", "box_copies", [(F32, (40, 68))]),
    ("sm_90a", "bulk_copies", [(F32, (40, 600))]),
    ("sm_90a", "roles_of_warps", [(F32, (40, 68))]),
    ("sm_90a", "group_products", [(DType.bfloat16, (64, 64))]),
    ("sm_100a", "tensor_products", [(DType.bfloat16, (128, 128))]),
    ("host", "complex_numbers", [(DType.complex64, (50,))]),
]


@cache
def instances() -> dict[str, tuple[Op, list[Site]]]:
    """For each irregular opcode an operation of a compiled kernel, and the sites of its program."""
    kernels = KernelFile(Path(__file__).parent / "opcode_kernels.py")
    collected: dict[str, tuple[Op, list[Site]]] = {}
    for target, name, inputs in KERNELS:
        program = typed_program(kernels.entry(name, inputs, {})[0], lookup(target), notes=True)
        halves = [host_half(program, lookup(target))] if lookup(target).has_grid else []
        for function in (function for half in (program, *halves) for function in half.functions):
            for op in walk(function.body):
                old = collected.get(op.name)
                if old is None or len(old[0].operands) < len(op.operands):
                    collected[op.name] = op, program.sites
    return collected


def regular(opcode: Opcode) -> Op:
    """A regular operation, on vectors of a type that its row takes."""
    assert opcode.row is not None
    row = opcode.row
    dtype = next(d for d in (DType.int32, F32, DType.bool) if row.takes(d) and not row.in_library(d))
    builder = Builder()
    return builder.row(row.name, [Value(SIMDType(dtype, 4)) for _ in range(row.arity)]).maker  # type: ignore[return-value]


def instance(opcode: Opcode) -> tuple[Op, list[Site]]:
    return (regular(opcode), []) if opcode.row is not None else instances()[opcode.name]


def copied(op: Op, known: dict[int, Value]) -> Op:
    """An operation once more, with values of its own; `known` are those, by the serials of the old ones."""

    def value(old: Value) -> Value:
        return known.setdefault(old.serial, Value(old.type, const=old.const))

    def region(old: Region) -> Region:
        return Region([value(v) for v in old.args], [copied(inner, known) for inner in old.ops])

    operands = [value(v) for v in op.operands]
    made = Op(op.opcode, operands, [], op.location, dict(op.attrs), [region(r) for r in op.regions])
    made.results = [value(v) for v in op.results]
    for result in made.results:
        result.maker = made
    return made


@dataclass
class Alone:
    """A program of one operation, whose operands are parameters; within a launch where it has to be."""

    op: Op
    program: Program

    def is_fine(self) -> bool:
        try:
            verify_program(self.program)
        except InternalError as error:
            assert error.code == "EK0904"
            return False
        return True


def alone(op: Op, sites: list[Site]) -> Alone:
    op = copied(op, {})
    ends: list[Op] = []
    if not op.opcode.ends:
        ends.append(Op(YIELD, [], [], op.location))
    body = Region([], [op, *ends])
    params = free_values(body)
    if op.opcode.within or op.name == "alloca":
        sizes = [Value(INT, const=1) for _ in range(7)]
        outer = Op(LAUNCH, sizes, [], op.location, {}, [body])
        params += sizes
        body = Region([], [outer, Op(YIELD, [], [], op.location)])
    return Alone(op, Program([ProgramFunction("f", params, body)], sites=sites))


# *** mutants ***

OTHER_TYPES = [
    INT,
    BOOL,
    SIMDType(F32),
    SIMDType(DType.int4),
    SIMDType(DType.int32, 4),
    SIMDType(F32, 8),
    SIMDType(DType.bool, 3),
    PointerType(DType.float64),
    PointerType(F32, "global", "read-only"),
]

Mutation = Callable[[Alone], None]


def of_types(op: Op) -> Iterator[tuple[str, Mutation]]:
    """Each operand and result with other types. Operands are parameters: nothing else makes them."""
    for part in ("operands", "results"):
        for number, value in enumerate(getattr(op, part)):
            for type in OTHER_TYPES:
                if type != value.type:

                    def change(program: Alone, part: str = part, number: int = number, type: Any = type) -> None:
                        old = getattr(program.op, part)[number]
                        new = Value(type)
                        getattr(program.op, part)[number] = new
                        if part == "results":
                            new.maker = program.op
                        else:
                            params = program.program.functions[0].params
                            params[params.index(old) : params.index(old)] = [new]

                    yield f"{part[:-1]} {number}: {type}", change


def of_counts(op: Op) -> Iterator[tuple[str, Mutation]]:
    """One operand, result or region too few or too many."""
    for part in ("operands", "results", "regions"):
        if getattr(op, part):
            yield f"no last of {part}", lambda p, part=part: getattr(p.op, part).pop()  # type: ignore[misc]
    yield "a result more", lambda p: p.op.results.append(made_by(p.op, INT))
    yield "a region more", lambda p: p.op.regions.append(Region([], [Op(YIELD, [], [], p.op.location)]))

    def one_more(program: Alone) -> None:
        value = Value(INT)
        program.program.functions[0].params.append(value)
        program.op.operands.append(value)

    yield "an operand more", one_more
    if op.operands:

        def unknown(program: Alone) -> None:
            program.op.operands[0] = Value(program.op.operands[0].type)

        yield "an operand without a definition", unknown
    if op.results:

        def itself(program: Alone) -> None:
            program.op.operands.append(program.op.results[0])

        yield "its own result as an operand", itself
        yield "a result made twice", lambda p: p.program.functions[0].params.append(p.op.results[0])


def made_by(op: Op, type: Any) -> Value:
    value = Value(type)
    value.maker = op
    return value


def of_attributes(op: Op) -> Iterator[tuple[str, Mutation]]:
    for name in op.attrs:
        if op.opcode.attrs[name].required:
            yield f"without {name}", lambda p, name=name: p.op.attrs.pop(name)  # type: ignore[misc]
        for wrong in (None, -1, 1 << 70, "everything", (1 << 70,), object()):
            yield f"{name} = {wrong}", lambda p, name=name, wrong=wrong: p.op.attrs.update({name: wrong})  # type: ignore[misc]
    yield "an attribute that it does not have", lambda p: p.op.attrs.update(color="red")


def of_regions(op: Op) -> Iterator[tuple[str, Mutation]]:
    for number in range(len(op.regions)):

        def of(program: Alone, number: int = number) -> Region:
            return program.op.regions[number]

        yield f"region {number} without an end", lambda p, of=of: of(p).ops.pop()  # type: ignore[misc]
        yield f"region {number} empty", lambda p, of=of: of(p).ops.clear()  # type: ignore[misc]
        yield f"region {number} ends twice", lambda p, of=of: of(p).ops.append(of(p).ops[-1])  # type: ignore[misc]
        yield f"region {number} with an argument more", lambda p, of=of: of(p).args.append(Value(BOOL))  # type: ignore[misc]

        def yields_more(program: Alone, of: Any = of) -> None:
            of(program).ops[-1].operands.append(program.op.operands[0])

        yield f"region {number} yields more", yields_more

        def ends_otherwise(program: Alone, of: Any = of) -> None:
            last = of(program).ops[-1]
            last.opcode = OPCODES["condition" if last.name == "yield" else "yield"]

        yield f"region {number} ends in another way", ends_otherwise
        for at in range(len(op.regions[number].args)):

            def other(program: Alone, of: Any = of, at: int = at) -> None:
                of(program).args[at].type = SIMDType(DType.int8, 2)

            yield f"region {number}, argument {at} of another type", other


def mutants(op: Op) -> Iterator[tuple[str, Mutation]]:
    yield from of_types(op)
    yield from of_counts(op)
    yield from of_attributes(op)
    yield from of_regions(op)


# Parts of which an operation may have any of some kind: these mutants are operations as good as the one that they were.
FREE: dict[str, str] = {
    "const": r"result 0: (Int64|Float32|SIMD\[int32, 4\]|SIMD\[float32, 8\])|value = -1",
    "cast": r"(operand|result) 0: \w+",
    "bitcast": r"operand 0: Float32",
    "load": r"operand 0: Pointer.*read-only\]|result 0: SIMD\[float32, 8\]",
    "masked_load": r"operand 0: Pointer.*read-only\]",
    "store": r"operand 0: SIMD\[float32, 8\]",
    "prefetch": r"operand 0: Pointer.*",
    "allocate": r"no last of operands|an operand more",
    "aligned": r"operand \d: Pointer.*|no last of operands",
    "assume_aligned": r"operand 0: Pointer.*",
    "offset": r"operand 0: Pointer.*read-only\]",
    "pointer_cast": r"(operand|result) 0: Pointer.*",
    "native": r"(operand|result) \d: .*|an operand more|no last of (operands|results)|code = everything",
    "native_pure": r"(operand|result) \d: .*|an operand more|no last of operands|code = everything",
    "exchange": r"operand [01]: Pointer.*",
    "null_pointer": r"result 0: Pointer.*",
    "scratch": r"result 0: Pointer.*",
    "alloca": r"result 0: Pointer.*|count = 1180591620717411303424",
    "launch": "an operand more",  # bytes of dynamic shared memory
    "enqueue": r"operand ([4-9]|\d\d): .*|an operand more|no last of operands|kernel = 1180591620717411303424|limits.*",
    "warp_match": r"operand 0: (?!Pointer).*",
    "copy_async": r"operand 2: Pointer.*read-only\]",
    "tensor_map": r"operand 0: Pointer.*read-only\]",
    "copy_row": r"operand 2: Pointer.*read-only\]",
    "copy_rows": r"operand 2: Pointer.*read-only\]",
    "together": "copies = everything",
    "note": r"operand \d+: .*|an operand more",
    # Of these the operations around them, whose regions they end, say what they take (see `regions`).
    "yield": r"operand \d+: .*|an operand more|no last of operands",
    "condition": r"operand [1-9]\d*: .*|an operand more|no last of operands",
}


@pytest.mark.parametrize("name", OPCODES)
def test_the_verifier_refuses_mutants(name: str) -> None:
    assert OPCODES[name].row is not None or name in instances(), f"no kernel in `opcode_kernels` has a {name}"
    op, sites = instance(OPCODES[name])
    if not op.opcode.ends:
        assert alone(op, sites).is_fine()
    accepted = []
    for what, mutate in mutants(op):
        program = alone(op, sites)
        mutate(program)
        if program.is_fine():
            accepted.append(what)
    free = FREE.get(name, "nothing")
    assert [what for what in accepted if not re.fullmatch(free, what)] == []


# *** the phases ***


def test_every_operation_is_typed_lowered_and_interpreted() -> None:
    """What one phase lacks is named. Rows are typed by `Builder.row`, and lowered as the table says."""
    assert families.EMITTERS is EMITTERS  # which importing the families fills
    missing = {
        "typing, or a kernel of `opcode_kernels`": set(IRREGULAR) - set(instances()),
        "lowering": set(OPCODES) - set(EMITTERS),
        "interpreter": set(IRREGULAR) - {*EVALUATORS, *STRUCTURED, *ENDS, "enqueue"},  # of the host's half
    }
    assert {phase: names for phase, names in missing.items() if names} == {}


def test_effects_agree() -> None:
    for opcode in OPCODES.values():
        assert not (opcode.is_pure and (opcode.accesses or opcode.has_effects or opcode.regions)), opcode
        assert not opcode.masked or opcode.accesses, opcode
        assert not (opcode.lanewise and opcode.crosses_lanes), opcode
        assert opcode.results or opcode.gives_more or opcode.has_effects or opcode.ends, f"{opcode} does nothing"
        assert opcode.within in ("", *OPCODES), opcode
        assert bool(opcode.loops or opcode.spreads or opcode.name == "if") == bool(opcode.regions), opcode


def test_operations_are_distinguished_by_their_records() -> None:
    """Code that checks what an operation is compares records; names are for the algebra of rows, and are known."""
    wrong = []
    for file in sorted(COMPILER.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare) and ast.unparse(node.left) in ("op.name", "maker.name", "loop.name"):
                names = {n.value for c in node.comparators for n in ast.walk(c) if isinstance(n, ast.Constant)} - {
                    True,
                    False,
                }
                if not names <= set(ROWS):
                    wrong.append(f"{file.relative_to(COMPILER)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)
