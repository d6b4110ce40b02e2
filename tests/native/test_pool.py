"""The thread pool runs every chunk once: alone, nested, from several threads, after a fork, and until the end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from einkorn.compiler.codegen import llvm
from einkorn.compiler.runtime.thread_pool import pool_object, pool_text
from einkorn.compiler.targets import host, lookup
from einkorn.dsl.contract.abi import ParallelFunction, PoolState, TaskFunction
from einkorn.dsl.diagnostics.errors import TargetError
from einkorn.graph.driver.shared_library import SharedLibrary
from einkorn.graph.driver.threads import ThreadPool

# Adds 1 to the chunk's own counter, 64 bytes from the next one; and runs many regions in a row.
TASKS = """
define void @count(ptr %counters, i64 %chunk) {
  %at = getelementptr [8 x i64], ptr %counters, i64 %chunk
  %old = load volatile i64, ptr %at
  %new = add i64 %old, 1
  store volatile i64 %new, ptr %at
  ret void
}
define void @repeat(ptr %run, ptr %pool, i64 %times, i64 %chunks, ptr %argument) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %run(ptr %pool, i64 %chunks, ptr @count, ptr %argument)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Library, ctypes.CDLL]:
    """The pool's code and the tasks' code."""
    folder = tmp_path_factory.mktemp("pool")
    (folder / "pool.so").write_bytes(pool_object(host()))
    (folder / "tasks.so").write_bytes(llvm.compile_module(TASKS, host()).link())
    return SharedLibrary(folder / "pool.so"), ctypes.CDLL(str(folder / "tasks.so"))


class Bench:
    """A pool with the counting task."""

    def __init__(self, libraries: tuple[Library, ctypes.CDLL], threads: int, spin: int) -> None:
        self.pool = ThreadPool(libraries[0], threads, spin=spin)
        self._repeat = libraries[1].repeat
        self._repeat.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
        self._repeat.restype = None

    def counts(self, times: int, chunks: int) -> list[int]:
        counters = (ctypes.c_int64 * (8 * max(1, chunks)))()
        self._repeat(self.pool.run, self.pool.address, times, chunks, ctypes.addressof(counters))
        return list(counters)[::8][:chunks]


@pytest.fixture(
    params=[(1, 2000), (2, 2000), (4, 0), (4, 100)], ids=lambda value: f"{value[0]}-threads-spin-{value[1]}"
)
def bench(request: pytest.FixtureRequest, libraries: tuple[Library, ctypes.CDLL]) -> Iterator[Bench]:
    before = set(threading.enumerate())  # the process may have a pool of its own
    actual = Bench(libraries, *request.param)
    yield actual
    actual.pool.close()
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("einkorn-worker")]


def test_layout_of_the_state() -> None:
    # Words that different threads write lie in different cache lines.
    lines = [getattr(PoolState, name).offset // 64 for name in ("epoch", "state", "next", "task", "busy")]
    assert lines == sorted(set(lines))
    assert ctypes.sizeof(PoolState) % 64 == 0
    assert PoolState.workers.offset // 64 == PoolState.task.offset // 64


@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 7, 64])
def test_every_chunk_runs_once_in_every_region(bench: Bench, chunks: int) -> None:
    times = 3000
    assert bench.counts(times, chunks) == [times] * chunks


def test_workers_take_part(bench: Bench) -> None:
    meeting = threading.Barrier(bench.pool.threads, timeout=20)
    seen = []

    def task(argument: int, chunk: int) -> None:
        meeting.wait()  # every thread of the pool must come, so no thread can take two chunks
        seen.append(threading.current_thread().name)

    run = ParallelFunction(bench.pool.run)
    callback = TaskFunction(task)
    run(bench.pool.address, bench.pool.threads, ctypes.cast(callback, ctypes.c_void_p), None)
    workers = {f"einkorn-worker-{number}" for number in range(1, bench.pool.threads)}
    assert sorted(seen) == sorted({threading.current_thread().name, *workers})


def test_nested_regions_run_in_their_caller(bench: Bench) -> None:
    run = ParallelFunction(bench.pool.run)
    threads: dict[int, set[int]] = {}
    done: list[tuple[int, int]] = []

    def outer(argument: int, chunk: int) -> None:
        def inner(argument: int, small: int) -> None:
            threads.setdefault(chunk, set()).add(threading.get_ident())
            done.append((chunk, small))

        callback = TaskFunction(inner)
        run(bench.pool.address, 5, ctypes.cast(callback, ctypes.c_void_p), None)

    callback = TaskFunction(outer)
    run(bench.pool.address, 6, ctypes.cast(callback, ctypes.c_void_p), None)
    assert sorted(done) == [(chunk, small) for chunk in range(6) for small in range(5)]
    assert all(len(idents) == 1 for idents in threads.values())


def test_callers_in_several_threads_do_not_disturb_each_other(bench: Bench) -> None:
    results: list[list[int]] = []
    callers = [threading.Thread(target=lambda: results.append(bench.counts(5000, 9))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [[5000] * 9] * 4


def test_sleeping_workers_wake_up(libraries: tuple[Library, ctypes.CDLL]) -> None:
    bench = Bench(libraries, 3, 0)
    state = PoolState.from_address(bench.pool.address)
    deadline = threading.Event()
    for _ in range(20):
        for _ in range(500):
            if state.sleepers == 2:
                break
            deadline.wait(0.01)
        assert state.sleepers == 2
        test_workers_take_part(bench)
    bench.pool.close()


@pytest.mark.parametrize("narrow", [False, True])
def test_a_thread_that_wakes_on_the_callers_core_may_run_where_it_might_before(
    libraries: tuple[Library, ctypes.CDLL], narrow: bool
) -> None:
    bench = Bench(libraries, 2, 0)
    state = PoolState.from_address(bench.pool.address)
    before = os.sched_getaffinity(0)
    core = min(before)
    (worker,) = (thread.native_id for thread in bench.pool._workers)
    assert worker is not None
    allowed = {core} if narrow else before  # with one core there is in no place to go
    os.sched_setaffinity(worker, allowed)
    os.sched_setaffinity(0, {core})
    try:
        for _ in range(20):
            for _ in range(500):
                if state.sleepers == 1:
                    break
                threading.Event().wait(0.002)
            assert bench.counts(3, 64) == [3] * 64
            assert state.core == core
    finally:
        os.sched_setaffinity(0, before)
    test_workers_take_part(bench)
    assert os.sched_getaffinity(worker) == allowed
    bench.pool.close()


def test_a_closed_pool_still_runs_regions(libraries: tuple[Library, ctypes.CDLL]) -> None:
    bench = Bench(libraries, 3, 100)
    bench.pool.close()
    assert bench.counts(100, 5) == [100] * 5
    bench.pool.start()
    test_workers_take_part(bench)
    bench.pool.close()


def test_a_pool_has_a_thread(libraries: tuple[Library, ctypes.CDLL]) -> None:
    with pytest.raises(ValueError, match="at least 1 thread"):
        ThreadPool(libraries[0], 0)


def test_other_systems_have_no_pool() -> None:
    with pytest.raises(TargetError, match="no thread pool for sm_90"):
        pool_text(lookup("sm_90"))


def test_the_code_is_the_same_every_time_and_for_aarch64_too() -> None:
    assert pool_object(host()) == pool_object(host())
    assert pool_object(lookup("aarch64"))[18] == 183


SCRIPT = """
import ctypes, os, sys, threading
from pathlib import Path
from einkorn.dsl.contract.abi import ParallelFunction, TaskFunction
from einkorn.graph.driver.shared_library import SharedLibrary
from einkorn.graph.driver.threads import ThreadPool

assert "einkorn.compiler" not in sys.modules
pool = ThreadPool(SharedLibrary(Path(sys.argv[1])), 3)
run = ParallelFunction(pool.run)
done = []
task = TaskFunction(lambda argument, chunk: done.append(chunk))
def region(chunks):
    done.clear()
    run(pool.address, chunks, ctypes.cast(task, ctypes.c_void_p), None)
    assert sorted(done) == list(range(chunks)), done
region(10)
"""


def run_script(tmp_path: Path, body: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    library = tmp_path / "pool.so"
    library.write_bytes(pool_object(host()))
    script = SCRIPT + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script, str(library)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.parametrize(
    "body",
    [
        "",  # the end finds sleeping workers
        "for _ in range(200): region(4)",  # and busy ones
        "sys.exit(0)",
        "pool.close(); pool.close()",
        "del pool",
        # A thread of the program that still runs regions at the end.
        "threading.Thread(target=lambda: [region(4) for _ in iter(int, 1)], daemon=True).start()",
    ],
)
def test_the_process_ends(tmp_path: Path, body: str) -> None:
    done = run_script(tmp_path, body)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_runs_alone_and_may_start_workers(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import warnings
        warnings.simplefilter("ignore")  # 3.12 warns of any fork of a process with threads
        for turn in range(10):
            child = os.fork()
            if child == 0:
                names = []
                note = TaskFunction(lambda argument, chunk: names.append(threading.current_thread().name))
                region(20)
                run(pool.address, 20, ctypes.cast(note, ctypes.c_void_p), None)
                assert set(names) == {threading.current_thread().name}
                pool.start()
                meeting = threading.Barrier(3, timeout=10)
                rendezvous = TaskFunction(lambda argument, chunk: meeting.wait() and None)
                run(pool.address, 3, ctypes.cast(rendezvous, ctypes.c_void_p), None)
                assert not meeting.broken
                sys.exit(7)
            region(20)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print("ok")
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_inside_a_region_ends_in_the_child(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        main, children = threading.get_ident(), []
        def fork_once(argument, chunk):
            if threading.get_ident() == main and not children:
                children.append(os.fork())
        forks = TaskFunction(fork_once)
        while not children:
            run(pool.address, 50, ctypes.cast(forks, ctypes.c_void_p), None)
        if children[0] == 0:
            region(9)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
        """,
    )
    assert done.returncode == 0, done.stderr
