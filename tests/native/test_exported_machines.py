"""Exported files on the machine: threads, stacks, levels of CPUs, and the bytes of workspaces."""

from __future__ import annotations

import ctypes
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.elf_files import ElfFile
from support.exported import CallFailed, Exported, attention, attention_arrays

from einkorn.dsl.contract import exports
from einkorn.dsl.contract.abi import ParallelFunction, TaskFunction
from einkorn.graph.engine.model import Model

F32 = np.float32
LARGE = (700, 300, 400)  # sizes of a call that is done by several threads


@pytest.fixture(scope="module")
def model() -> Model:
    return graphs.load(attention, (F32, ("b", "k")), (F32, ("k", "n")))


@pytest.fixture(scope="module")
def exported(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(model, tmp_path_factory.mktemp("export"), "attn")


def address(array: graphs.Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def sizes(*numbers: int) -> list[ctypes.c_int64]:
    return [ctypes.c_int64(number) for number in numbers]


def test_a_workspace_has_the_bytes_of_pythons_arena(model: Model, exported: Exported) -> None:
    plan = model._own.codes()[0].plan
    exported.library.attn_workspace.restype = ctypes.c_int64
    for b, k, n in ((5, 7, 9), (33, 17, 70), LARGE, (0, 1, 1)):
        assert exported.library.attn_workspace(*sizes(b, k, n)) == plan.place({"b": b, "k": k, "n": n})[1]
    assert exported.library.attn_workspace(*sizes(1 << 31, 1, 1 << 29)) == exports.WRONG_SIZE


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
def test_any_number_of_threads_gives_the_same_bits(model: Model, exported: Exported, threads: int) -> None:
    exported.library.attn_set_threads(ctypes.c_int64(threads))
    given = attention_arrays(*LARGE)
    expected = graphs.results(model, *given)[0].tobytes()
    try:
        for _ in range(3):
            assert exported(*given)[0].tobytes() == expected
        callers = [threading.Thread(target=lambda: results.append(exported(*given)[0].tobytes())) for _ in range(3)]
        results: list[bytes] = []
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert results == [expected] * 3
    finally:
        exported.library.attn_close()


def test_the_host_may_run_the_parallel_work(model: Model, exported: Exported) -> None:
    calls = []

    def parallel(pool: int, chunks: int, task: int, argument: int) -> None:
        calls.append((pool, chunks))
        for chunk in reversed(range(chunks)):
            TaskFunction(task)(argument, chunk)

    mine = ParallelFunction(parallel)
    exported.library.attn_set_parallel(mine, ctypes.c_void_p(64), ctypes.c_int64(3))
    try:
        given = attention_arrays(*LARGE)
        assert exported(*given)[0].tobytes() == graphs.results(model, *given)[0].tobytes()
        assert calls and all(pool == 64 for pool, _ in calls)
        before = len(calls)
        exported(*attention_arrays(2, 3, 4))  # too small for several threads
        assert len(calls) == before
    finally:
        exported.library.attn_set_parallel(None, None, ctypes.c_int64(0))


def test_without_threads_nothing_of_them_is_in_the_file(model: Model, tmp_path: Path) -> None:
    alone = Exported(model, tmp_path, "attn", threads=False)
    file = ElfFile(alone.path.read_bytes())
    assert not file.exported() & {"attn_set_threads", "attn_set_parallel", "attn_close"}
    assert "libpthread.so.0" not in file.needed or alone.record.stack_bytes > exports.PLAIN_STACK
    given = attention_arrays(*LARGE)
    assert alone(*given)[0].tobytes() == graphs.results(model, *given)[0].tobytes()


def stack_of_this_thread() -> int:
    """Its bytes: the C library may give a thread the larger stack of one that has ended."""
    library, attributes = ctypes.CDLL(None), (ctypes.c_uint64 * 16)()
    library.pthread_self.restype = ctypes.c_void_p
    low, size = ctypes.c_void_p(), ctypes.c_size_t()
    library.pthread_getattr_np(ctypes.c_void_p(library.pthread_self()), attributes)
    library.pthread_attr_getstack(attributes, ctypes.byref(low), ctypes.byref(size))
    library.pthread_attr_destroy(attributes)
    return size.value


def test_a_thread_with_too_small_a_stack(model: Model, exported: Exported) -> None:
    """The plain form finds a stack elsewhere; the others return a status. Nothing overflows."""
    need = exported.record.stack_bytes
    given = attention_arrays(*LARGE)
    expected = graphs.results(model, *given)[0].tobytes()
    results: list[Any] = []
    stacks: list[int] = []

    def work() -> None:
        stacks.append(stack_of_this_thread())
        results.append(exported(*given)[0].tobytes())
        exported.library.attn_workspace.restype = ctypes.c_int64
        size = exported.library.attn_workspace(*sizes(*LARGE))
        memory, y, failure = (
            np.zeros(size + 64, np.uint8),
            np.zeros((LARGE[0], LARGE[1]), F32),
            exports.ExportedFailure(),
        )
        skip = -memory.ctypes.data % 64
        place = ctypes.c_void_p(memory.ctypes.data + skip)
        words = [*map(address, given), *sizes(*LARGE), address(y), place, ctypes.byref(failure)]
        results.append((exported.library.attn_in(*words), exported.describe(failure) if failure.status else ""))

    before = threading.stack_size(256 << 10)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert results[0] == expected
    if need > stacks[0]:
        text = f"error: a call needs {need} bytes of stack, more than are left"
        assert results[1] == (exports.SMALL_STACK, text)
    else:
        assert results[1] == (0, "")


def test_a_machine_below_the_lowest_level(model: Model, tmp_path: Path) -> None:
    """Code for another level than the machine's: chosen where it runs, refused where it does not."""
    from einkorn.compiler.targets import fits, host

    if host().architecture != "x86_64":
        pytest.skip("these levels are x86-64's")
    given = attention_arrays(5, 7, 9)
    for target in ("x86-64-v3", "x86-64-v4"):
        made = Exported(model, tmp_path, "attn", targets=target)
        if fits(target):
            made(*given)
            continue
        with pytest.raises(CallFailed, match=f"this machine runs no code for {target}") as caught:
            made(*given)
        assert caught.value.status == exports.WRONG_MACHINE


def test_several_levels_in_one_file(model: Model, tmp_path: Path) -> None:
    from einkorn.compiler.targets import fits, host

    if host().architecture != "x86_64":
        pytest.skip("these levels are x86-64's")
    names = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    given = attention_arrays(33, 17, 70)
    best = [name for name in names if fits(name)][-1]
    alone = Exported(model, tmp_path, "attn", targets=best)(*given)[0].tobytes()
    assert Exported(model, tmp_path, "attn", targets=names)(*given)[0].tobytes() == alone


def test_the_slow_level_is_named_in_a_warning(model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Code for x86-64-v2 has the same bits; it calls fmaf."""
    from einkorn.compiler.targets import host

    if host().architecture != "x86_64":
        pytest.skip("this level is x86-64's")
    given = attention_arrays(33, 17, 70)
    with caplog.at_level(logging.WARNING, "einkorn.export"):
        slow = Exported(model, tmp_path, "attn", targets="x86-64-v2")
        assert "x86-64-v2 has no fused multiply-add" in caplog.text
        caplog.clear()
        Exported(model, tmp_path, "attn", targets="x86-64-v3")
        assert not caplog.text
    assert slow(*given)[0].tobytes() == graphs.results(model, *given)[0].tobytes()


def test_other_symbols_stay_inside(exported: Exported) -> None:
    file = ElfFile(exported.path.read_bytes())
    assert all(name.startswith("attn") for name in file.exported())
    assert set(file.needed) <= {"libc.so.6", "libm.so.6", "libpthread.so.0"}
