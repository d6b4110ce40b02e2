"""The functions of exported files, called by `ctypes`: results, sizes, workspaces, plans, and what is refused."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.exported import CallFailed, Exported, attention, attention_arrays

from einkorn.compiler.codegen.elf.object_file import read_object
from einkorn.compiler.codegen.llvm import emit_object
from einkorn.compiler.doors.c import c_text
from einkorn.compiler.targets import lookup
from einkorn.dsl.contract import exports
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.dsl.package import elf
from einkorn.graph import BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.engine.export import ExportOptions, export_model
from einkorn.graph.engine.model import Model

HOST = DeviceRef.CPU()
F32 = np.float32


@pytest.fixture(scope="module")
def model() -> Model:
    return graphs.load(attention, (F32, ("b", "k")), (F32, ("k", "n")))


@pytest.fixture(scope="module")
def exported(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(model, tmp_path_factory.mktemp("export"), "attn")


def test_results_are_those_of_python(model: Model, exported: Exported) -> None:
    for sizes in ((5, 7, 9), (1, 1, 1), (0, 3, 4), (33, 17, 70)):
        given = attention_arrays(*sizes)
        for ours, theirs in zip(graphs.results(model, *given), exported(*given), strict=True):
            assert ours.tobytes() == theirs.tobytes()


def _address(array: graphs.Array, offset: int = 0) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data + offset)


def _sizes(*numbers: int) -> list[ctypes.c_int64]:
    return [ctypes.c_int64(number) for number in numbers]


def _aligned(size: int) -> tuple[graphs.Array, int]:
    memory = np.full(size + 64, 0xAA, np.uint8)
    return memory, -memory.ctypes.data % 64


def test_a_workspace_of_the_bytes_that_are_said_is_enough(model: Model, exported: Exported) -> None:
    """Nothing behind the workspace is written."""
    library = exported.library
    library.attn_workspace.restype = ctypes.c_int64
    x, w = attention_arrays()
    size = library.attn_workspace(*_sizes(5, 7, 9))
    assert size > 0 and size % 64 == 0
    memory, skip = _aligned(size + 4096)
    y = np.zeros((5, 7), F32)
    status = library.attn_in(_address(x), _address(w), *_sizes(5, 7, 9), _address(y), _address(memory, skip), None)
    assert status == 0
    assert y.tobytes() == graphs.results(model, x, w)[0].tobytes()
    assert (memory[skip + size :] == 0xAA).all()


def test_a_plan_serves_many_calls(model: Model, exported: Exported) -> None:
    library = exported.library
    plan = (ctypes.c_int64 * (exported.record.plan_bytes // 8))()
    assert library.attn_prepare(*_sizes(5, 7, 9), plan, None) == 0
    before = list(plan)
    memory, skip = _aligned(library.attn_workspace(*_sizes(5, 7, 9)))
    for seed in range(3):
        x, w = (graphs.numbers(a.shape, F32, seed) for a in attention_arrays())
        y = np.zeros((5, 7), F32)
        assert library.attn_run(plan, _address(x), _address(w), _address(y), _address(memory, skip), None) == 0
        assert y.tobytes() == graphs.results(model, x, w)[0].tobytes()
    assert list(plan) == before


def _failed(exported: Exported, status: int, failure: exports.ExportedFailure) -> tuple[int, str]:
    assert failure.status == status
    return status, exported.describe(failure)


def test_wrong_arguments_have_a_status_and_a_text(exported: Exported) -> None:
    x, w = attention_arrays()
    y = np.zeros((5, 7), F32)
    function = exported.library.attn
    failure = exports.ExportedFailure()

    def call(first: Any, second: Any, sizes: tuple[int, int, int], last: Any) -> tuple[int, str]:
        status = function(first, second, *_sizes(*sizes), last, ctypes.byref(failure))
        return _failed(exported, status, failure)

    good = (5, 7, 9)
    assert call(_address(x), None, good, _address(y)) == (
        exports.WRONG_ARGUMENT,
        "error[EK0452]: 'w' is a null pointer, and has elements",
    )
    assert (failure.argument, failure.axis) == (1, -1)
    status, text = call(_address(x, 1), _address(w), good, _address(y))
    assert status == exports.WRONG_ARGUMENT and "need a multiple of 4" in text and failure.argument == 0
    status, text = call(_address(x), _address(w), good, _address(w))
    assert status == exports.WRONG_ARGUMENT and "shares memory with tensor 1" in text and failure.argument == 2
    assert call(_address(x), _address(w), (5, -7, 9), _address(y)) == (
        exports.WRONG_SIZE,
        "error[EK0475]: size 'k' is -7, below zero",
    )
    status, text = call(_address(x), _address(w), (1 << 40, 1 << 40, 9), _address(y))
    assert status == exports.WRONG_SIZE and "EK0476" in text
    assert call(_address(x), _address(w), good, _address(y)) == (0, "")
    assert function(_address(x), None, *_sizes(*good), _address(y), None) == exports.WRONG_ARGUMENT


def test_wrong_workspaces_and_plans_have_a_status(exported: Exported) -> None:
    library, failure = exported.library, exports.ExportedFailure()
    x, w = attention_arrays()
    y = np.zeros((5, 7), F32)
    given = (_address(x), _address(w), *_sizes(5, 7, 9), _address(y))
    memory, skip = _aligned(1 << 16)
    for workspace, word in ((None, "null"), (_address(memory, skip + 8), "multiple of 64")):
        status = library.attn_in(*given, workspace, ctypes.byref(failure))
        assert status == exports.WRONG_WORKSPACE and word in _failed(exported, status, failure)[1]
    plan = (ctypes.c_int64 * (exported.record.plan_bytes // 8))()
    run = (_address(x), _address(w), _address(y), _address(memory, skip), ctypes.byref(failure))
    for wrong in (plan, None):
        status = library.attn_run(wrong, *run)
        assert status == exports.WRONG_SIZE and "attn_prepare" in _failed(exported, status, failure)[1]
    assert library.attn_prepare(*_sizes(5, 7, -9), plan, None) == exports.WRONG_SIZE
    assert library.attn_run(plan, *run) == exports.WRONG_SIZE  # what was prepared before is gone
    assert library.attn_workspace(*_sizes(5, 7, -9)) == exports.WRONG_SIZE


def fixed() -> Model:
    """A graph whose sizes are all known, with temporaries between its groups."""
    return graphs.load(attention, (F32, (5, 7)), (F32, (7, 9)))


def test_a_graph_of_known_sizes(tmp_path: Path) -> None:
    """Its plan is a constant: it is copied, and recognised."""
    known = Exported(fixed(), tmp_path, "attn")
    given = attention_arrays()
    expected = graphs.results(known.model, *given)[0]
    assert known(*given)[0].tobytes() == expected.tobytes()
    library, failure = known.library, exports.ExportedFailure()
    library.attn_workspace.restype = ctypes.c_int64
    size = library.attn_workspace()
    assert size == known.model.code.plan.place({})[1] > 0
    workspace, skip = _aligned(size)
    plan = (ctypes.c_int64 * (known.record.plan_bytes // 8))()
    y = np.zeros_like(expected)
    call = [*map(_address, given), _address(y), _address(workspace, skip), ctypes.byref(failure)]
    status = library.attn_run(plan, *call)
    assert _failed(known, status, failure) == (exports.WRONG_SIZE, "error: the plan was not prepared by attn_prepare")
    assert library.attn_prepare(None, ctypes.byref(failure)) == exports.WRONG_SIZE
    assert library.attn_prepare(plan, ctypes.byref(failure)) == 0
    for _ in range(2):
        assert library.attn_run(plan, *call) == 0 and y.tobytes() == expected.tobytes()
        assert (failure.status, failure.row, failure.argument, failure.axis) == (0, -1, -1, -1)
        y[:] = 0
    assert library.attn_in(*call) == 0 and y.tobytes() == expected.tobytes()
    assert (workspace[:skip] == 0xAA).all() and (workspace[skip + size :] == 0xAA).all()


def test_tensors_of_known_sizes_may_lie_side_by_side(tmp_path: Path) -> None:
    known = Exported(graphs.load(lambda x: ops.relu(x), (F32, (8,))), tmp_path, "attn")
    memory, failure = np.arange(-12, 24, dtype=F32), exports.ExportedFailure()
    for x, y in ((0, 8), (8, 0), (0, 24)):
        assert known.library.attn(_address(memory, 4 * x), _address(memory, 4 * y), ctypes.byref(failure)) == 0
        assert (memory[y : y + 8] == np.maximum(memory[x : x + 8], 0)).all()
    for x, y in ((0, 7), (7, 0), (8, 1), (3, 3)):
        status = known.library.attn(_address(memory, 4 * x), _address(memory, 4 * y), ctypes.byref(failure))
        expected = "error[EK0462]: 'y' is written, and shares memory with tensor 0"
        assert _failed(known, status, failure) == (exports.WRONG_ARGUMENT, expected)
    for k, offset, text in ((0, 2, "lies at"), (1, 1, "lies at"), (0, None, "null"), (1, None, "null")):
        call = [_address(memory), _address(memory, 32)]
        call[k] = ctypes.c_void_p(None) if offset is None else _address(memory, 32 * k + offset)
        status = known.library.attn(*call, ctypes.byref(failure))
        assert status == exports.WRONG_ARGUMENT and text in known.describe(failure)
        assert f"'{'xy'[k]}'" in known.describe(failure) and failure.argument == k


def test_no_code_for_a_machine_has_its_text_without_a_row(exported: Exported) -> None:
    failure = exports.ExportedFailure(status=exports.WRONG_MACHINE, argument=-1, axis=-1, row=-1)
    assert exported.describe(failure) == "error: this machine runs no code for host"


def test_code_around_the_kernel_of_the_smallest_graph() -> None:
    """All functions of the door of a graph that takes one vector of a known size: 512 bytes at most."""
    x86 = lookup("x86-64-v2")
    options = ExportOptions(targets=("x86-64-v3",))
    model = graphs.load(lambda x: ops.relu(x), (F32, (64,)))
    spec = export_model(model.export_source(options, "model"), options).spec
    sections = read_object(emit_object(c_text(spec, x86), x86, level=2)).sections
    assert sum(section.size for section in sections if section.flags & elf.SHF_EXECINSTR) <= 512


def test_a_description_is_cut_as_snprintf_cuts_it(exported: Exported) -> None:
    failure = exports.ExportedFailure()
    describe = exported.library.attn_describe
    describe.restype = ctypes.c_size_t
    assert exported.library.attn(None, None, *_sizes(5, 7, -9), None, ctypes.byref(failure)) == exports.WRONG_SIZE
    whole = exported.describe(failure)
    room = ctypes.create_string_buffer(b"?" * 16)
    assert describe(ctypes.byref(failure), room, ctypes.c_size_t(8)) == len(whole)
    assert room.raw[:9] == whole[:7].encode() + b"\0?"
    assert describe(ctypes.byref(failure), None, ctypes.c_size_t(0)) == len(whole)
    assert describe(None, room, ctypes.c_size_t(8)) == 0 and room.value == b""


def test_the_descriptor_says_what_a_binding_needs(exported: Exported) -> None:
    record = exported.record
    tensors = [record.tensors[k] for k in range(record.inputs + record.outputs)]
    said = [(t.name.decode(), t.dtype.decode(), [t.dims[k].decode() for k in range(t.rank)]) for t in tensors]
    assert said == [
        ("x", "float32", ["b", "k"]),
        ("w", "float32", ["k", "n"]),
        ("y", "float32", ["b", "k"]),
    ]
    assert [record.dim_names[k].decode() for k in range(record.dims)] == ["b", "k", "n"]
    assert record.name == b"test" and record.target == b"host" and len(record.digest) == 64


def test_a_buffer_is_changed_in_place(tmp_path: Path) -> None:
    def forward(cache: Any, x: Any) -> Any:
        cache[...] = ops.buffer_load(cache) + x
        return ops.buffer_load(cache) * 2

    types = [BufferType(DType.float32, ("n",), HOST), TensorType(DType.float32, ("n",), HOST)]
    made = Exported(InferenceSession().load(Graph("add", forward, types)), tmp_path)
    cache, x = np.arange(4, dtype=F32), np.ones(4, F32)
    (doubled,) = made(cache, x)
    assert cache.tolist() == [1, 2, 3, 4] and doubled.tolist() == [2, 4, 6, 8]
    with pytest.raises(CallFailed, match="'cache' is written, and shares memory"):
        made.call([cache, cache], [4])


def test_sizes_that_are_computed_come_with_the_memory(tmp_path: Path) -> None:
    types = [TensorType(DType.float32, ("n",), HOST), TensorType(DType.bool, ("n",), HOST)]

    def forward(x: Any, keep: Any) -> Any:
        actual = ops.masked_select(x, keep, "k") if hasattr(ops, "masked_select") else ops.nonzero(keep, "k")
        return [actual, ops.exp(x)]

    model = InferenceSession().load(Graph("kept", forward, types))
    made = Exported(model, tmp_path)
    assert made.record.late_dims == 1 and not made.record.workspace and not made.record.run
    for seed in range(3):
        x = graphs.numbers((20,), F32, seed)
        given = [x, x > 0]
        for ours, theirs in zip(graphs.results(model, *given), made(*given), strict=True):
            assert ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()


def test_what_cannot_be_exported_is_refused(model: Model, tmp_path: Path) -> None:
    for wrong, said in (
        ({"path": tmp_path / "a.dll"}, "ends in .so, .o or .pkg"),
        ({"name": "a-b"}, "is not a name in C"),
        ({"name": "for"}, "is not a name in C"),
        ({"output_names": ["a", "b"]}, "1 outputs, and 2 names"),
        ({"targets": ["x86-64-v3", "aarch64"]}, "cannot be exported for"),
        ({"targets": ["sm_90a"]}, "cannot be exported for"),
    ):
        with pytest.raises(EinkornError, match="EK0483") as caught:
            model.export(**{"path": tmp_path / "a.so", **wrong})  # type: ignore[arg-type]
        assert said in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the words of this test are those of x86-64's MXCSR")
@pytest.mark.parametrize("mode", [0x1F80, 0xFFC0, 0x0000, 0x8040], ids=["plain", "upward", "trapping", "all"])
def test_the_float_mode_of_a_program_stays_outside(tmp_path: Path, mode: int) -> None:
    """A program that flushes denormal numbers, rounds otherwise, or has exceptions trap gets the same bits, and keeps
    its mode."""
    made = Exported(graphs.load(lambda x, y: ops.div(x, y), (F32, ("n",)), (F32, ("n",))), tmp_path, "quotient")
    x, y = np.array([1e-40, 1, 1, 0, 3e38], F32), np.array([1, 3, 0, 0, 1e-3], F32)
    with np.errstate(all="ignore"):
        expected = (x / y).tobytes()
    found = np.zeros(5, F32)
    libm = ctypes.CDLL("libm.so.6")
    before, changed, after = (np.zeros(8, np.uint32) for _ in range(3))  # an fenv_t; its last word is MXCSR
    libm.fegetenv(_address(before))
    changed[:] = before
    changed[7] = mode
    words = [*map(_address, (x, y)), *_sizes(5), _address(found), None]
    places = [_address(each) for each in (changed, after, before)]
    call, set_mode, mode_of = made.library.quotient, libm.fesetenv, libm.fegetenv
    set_mode(places[0])
    status = call(*words)
    mode_of(places[1])
    set_mode(places[2])
    assert (status, found.tobytes()) == (0, expected)
    assert after[7] & ~np.uint32(0x3F) == mode
