"""The pool of exported files: lazy workers, forks, hosts' own pools, the end; and the checks of stacks."""

from __future__ import annotations

import ctypes
import io
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from _ctypes import dlclose
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.elf_files import ElfFile

from einkorn.compiler.codegen import llvm
from einkorn.compiler.codegen.elf.linker import undefined_symbols, write_relocatable, write_shared
from einkorn.compiler.runtime.native_threads import (
    NEEDED,
    STACK_FUNCTIONS,
    THREAD_FUNCTIONS,
    stack_object,
    threads_object,
)
from einkorn.compiler.targets import host, lookup
from einkorn.dsl.contract.abi import Context, ParallelFunction, TaskFunction
from einkorn.dsl.diagnostics.errors import TargetError

PUBLIC = (*THREAD_FUNCTIONS, *STACK_FUNCTIONS, "count")
TASKS = Path("/proc/self/task")

needs_proc = pytest.mark.skipif(not TASKS.exists(), reason="this system lists no threads in /proc")

# Adds 1 to the chunk's own counter, 64 bytes from the next one.
COUNT = """
define void @count(ptr %counters, i64 %chunk) {
  %at = getelementptr [8 x i64], ptr %counters, i64 %chunk
  %old = load volatile i64, ptr %at
  %new = add i64 %old, 1
  store volatile i64 %new, ptr %at
  ret void
}
"""


def write_library(path: Path) -> None:
    parts = [threads_object(host()), stack_object(host()), llvm.emit_object(COUNT, host())]
    with path.open("wb") as file:
        write_shared(file, parts, needed=NEEDED, public=PUBLIC)


class Library:
    """The code, and calls of it."""

    def __init__(self, path: Path) -> None:
        self.code = ctypes.CDLL(str(path))
        self.code.ek_threads_enter.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        self.code.ek_threads_host.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        self.code.ek_threads_set.argtypes = self.code.ek_stack_has.argtypes = [ctypes.c_int64]
        self.code.ek_stack_call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]

    def context(self, stack: int = 0) -> Context:
        context = Context()
        self.code.ek_threads_enter(ctypes.addressof(context), stack)
        return context

    def run(self, task: Any, chunks: int, context: Context | None = None) -> None:
        context = context or self.context()
        assert context.parallel
        ParallelFunction(context.parallel)(context.pool, chunks, ctypes.cast(task, ctypes.c_void_p), None)

    def counts(self, times: int, chunks: int) -> list[int]:
        counters = (ctypes.c_int64 * (8 * max(1, chunks)))()
        context = self.context()
        run, task = ParallelFunction(context.parallel), ctypes.cast(self.code.count, ctypes.c_void_p)
        for _ in range(times):
            run(context.pool, chunks, task, ctypes.addressof(counters))
        return list(counters)[::8][:chunks]

    def threads_of(self, chunks: int) -> set[int]:
        """The threads that run a region in which all of the pool have to come."""
        meeting, seen = threading.Barrier(chunks, timeout=20), set[int]()

        def task(argument: int, chunk: int) -> None:
            meeting.wait()
            seen.add(threading.get_native_id())

        self.run(TaskFunction(task), chunks)
        return seen


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "threads.so"
    write_library(path)
    return path


@pytest.fixture
def library(path: Path) -> Iterator[Library]:
    library = Library(path)
    library.code.ek_threads_set(3)
    yield library
    library.code.ek_threads_close()
    library.code.ek_threads_host(None, None, 0)


def running() -> set[int]:
    return {int(each.name) for each in TASKS.iterdir()}


@needs_proc
def test_workers_start_with_the_first_region_and_end_at_close(library: Library) -> None:
    before = running()
    context = library.context()
    assert context.threads == 3 and context.pool and running() == before
    one = TaskFunction(lambda argument, chunk: None)
    library.run(one, 1)
    assert running() == before
    for _ in range(3):
        seen = library.threads_of(3)
        assert len(seen) == 3 and seen - before == running() - before
        library.code.ek_threads_close()
        library.code.ek_threads_close()
        assert running() == before


@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 64])
def test_every_chunk_runs_once_in_every_region(library: Library, chunks: int) -> None:
    assert library.counts(1000, chunks) == [1000] * chunks


def test_callers_in_several_threads_do_not_disturb_each_other(library: Library) -> None:
    results: list[list[int]] = []
    callers = [threading.Thread(target=lambda: results.append(library.counts(1000, 9))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [[1000] * 9] * 4


def test_nested_regions_run_in_their_caller(library: Library) -> None:
    done: list[tuple[int, int]] = []

    def outer(argument: int, chunk: int) -> None:
        library.run(TaskFunction(lambda argument, small: done.append((chunk, small))), 4)

    library.run(TaskFunction(outer), 5)
    assert sorted(done) == [(chunk, small) for chunk in range(5) for small in range(4)]


def test_threads_can_be_chosen(library: Library) -> None:
    library.code.ek_threads_set(1)
    context = library.context()
    assert (context.pool, context.parallel, context.threads) == (None, None, 1)
    library.code.ek_threads_set(0)
    assert library.context().threads == min(256, len(os.sched_getaffinity(0)))
    library.code.ek_threads_set(1 << 40)
    assert library.context().threads == 256


def test_a_host_may_have_a_pool_of_its_own(library: Library) -> None:
    calls = []

    def parallel(pool: int, chunks: int, task: int, argument: int) -> None:
        calls.append((pool, chunks))
        for chunk in reversed(range(chunks)):
            TaskFunction(task)(argument, chunk)

    mine = ParallelFunction(parallel)
    library.code.ek_threads_host(ctypes.cast(mine, ctypes.c_void_p), 0x1230, 7)
    context = library.context()
    assert (context.pool, context.threads) == (0x1230, 7)
    assert library.counts(2, 5) == [2] * 5 and calls == [(0x1230, 5)] * 2
    library.code.ek_threads_host(None, None, 0)
    assert library.context().threads == 3 and library.counts(2, 5) == [2] * 5 and len(calls) == 2


def test_a_call_that_needs_more_stack_than_workers_have_runs_alone(library: Library) -> None:
    library.context(1 << 20)
    assert library.counts(1, 4) == [1] * 4
    assert library.context(1 << 20).threads == 3 and library.context(2 << 20).threads == 1
    library.code.ek_threads_close()
    assert library.context(2 << 20).threads == 3

    def task(argument: int, chunk: int) -> None:
        meeting.wait()
        enough.append(library.code.ek_stack_has(2 << 20))

    meeting, enough = threading.Barrier(3, timeout=20), list[int]()
    library.run(TaskFunction(task), 3)
    assert enough == [1, 1, 1]


def test_idle_workers_take_no_time(library: Library) -> None:
    library.threads_of(3)
    time.sleep(0.02)
    start = time.process_time()
    time.sleep(0.4)
    assert time.process_time() - start < 0.2  # two workers that looked for work would take 0.8 s


@needs_proc
def test_workers_block_signals(library: Library) -> None:
    before = running()
    library.threads_of(3)
    for worker in running() - before:
        status = (TASKS / str(worker) / "status").read_text()
        blocked = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")]
        if not blocked:
            pytest.skip("this system does not show which signals a thread blocks")
        assert int(blocked[0], 16) & 0x7FF  # all but those that the C library keeps for itself
    assert len(running() - before) == 2


@needs_proc
def test_closing_the_library_ends_the_workers(tmp_path: Path) -> None:
    write_library(tmp_path / "own.so")
    before = running()
    library = Library(tmp_path / "own.so")
    library.code.ek_threads_set(3)
    assert len(library.threads_of(3)) == 3
    library.code.ek_stack_has(1)
    dlclose(library.code._handle)
    assert running() == before
    assert str(tmp_path / "own.so") not in Path("/proc/self/maps").read_text()


SCRIPT = """
import os, sys, threading
sys.path.insert(0, sys.argv[2])
from test_native_threads import Library, running
from pathlib import Path
library = Library(Path(sys.argv[1]))
library.code.ek_threads_set(3)
"""


@pytest.mark.parametrize(
    "body",
    [
        "library.threads_of(3)",
        "library.threads_of(3); sys.exit(0)",
        "threading.Thread(target=lambda: [library.counts(9, 9) for _ in iter(int, 1)], daemon=True).start()",
        """
        library.threads_of(3)
        child = os.fork()
        if child == 0:
            assert library.counts(10, 9) == [10] * 9 and len(running()) == 1
            library.code.ek_threads_close()
            assert len(library.threads_of(3)) == 3
            library.code.ek_threads_close()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert len(library.threads_of(3)) == 3
        """,
        """
        library.threads_of(3)
        child = os.fork()  # the end of the child finds no workers to wait for
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """,
    ],
)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_processes_end_and_fork(path: Path, body: str) -> None:
    script = SCRIPT + textwrap.dedent(body)
    command = [sys.executable, "-W", "ignore", "-c", script, str(path), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_how_much_stack_is_left(library: Library) -> None:
    results: list[int] = []
    sizes = (1, 64 << 10, 400 << 10, 8 << 20)

    def look() -> None:
        for _ in range(2):
            results.extend(library.code.ek_stack_has(size) for size in sizes)

    before = threading.stack_size(512 << 10)
    try:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert results == [1, 1, 1, 0] * 2
    assert library.code.ek_stack_has(1) == 1


def test_a_call_in_a_thread_with_more_stack(library: Library) -> None:
    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    def function(argument: int) -> int:
        assert library.code.ek_stack_has(64 << 20)
        return argument + threading.get_native_id() * 0 + 1

    address = ctypes.cast(function, ctypes.c_void_p)
    assert library.code.ek_stack_call(address, 41, 64 << 20) == 42
    assert library.code.ek_stack_call(address, 41, 1 << 60) == -2


@pytest.mark.parametrize("target", ["x86-64-v2", "aarch64"])
def test_what_the_objects_need(target: str) -> None:
    for make in (threads_object, stack_object):
        made = make(lookup(target))
        assert made == make(lookup(target))
        names = {name for name in undefined_symbols(made) if not name.startswith("pthread_")}
        assert names <= {"syscall", "clock_gettime", "memset", "getauxval", "getrlimit"}
    output = io.BytesIO()
    parts = [threads_object(lookup(target)), stack_object(lookup(target))]
    write_relocatable(output, parts, public=[*THREAD_FUNCTIONS, *STACK_FUNCTIONS])
    assert ElfFile(output.getvalue()).exported() == {*THREAD_FUNCTIONS, *STACK_FUNCTIONS}


def test_other_systems_have_none() -> None:
    with pytest.raises(TargetError, match="no threads for sm_90"):
        threads_object(lookup("sm_90"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("options", [[], ["-static"]])
def test_a_c_program_links_the_pool(tmp_path: Path, options: list[str]) -> None:
    target = lookup("x86-64-v2" if host().architecture == "x86_64" else "aarch64")
    with (tmp_path / "threads.o").open("wb") as file:
        write_relocatable(file, [threads_object(target), stack_object(target)], public=PUBLIC[:-1])
    (tmp_path / "main.c").write_text(
        """
        #include <stdint.h>
        #include <stdio.h>
        void ek_threads_enter(void *, int64_t); void ek_threads_set(int64_t); int ek_stack_has(int64_t);
        typedef void (*task)(void *, int64_t); typedef void (*parallel)(void *, int64_t, task, void *);
        static int64_t counts[64][8];
        static void add(void *argument, int64_t chunk) { counts[chunk][0] += 1; }
        int main(void) {
            int64_t context[9] = {0};
            ek_threads_set(4);
            ek_threads_enter(context, 1 << 20);
            for (int n = 0; n < 500; n++) ((parallel)context[1])((void *)context[0], 64, add, 0);
            for (int n = 0; n < 64; n++) if (counts[n][0] != 500) return 1;
            printf("%d threads, %d %d\\n", (int)context[4], ek_stack_has(1000), ek_stack_has(1LL << 40));
            return 0;
        }
        """
    )
    command = ["gcc", *options, str(tmp_path / "main.c"), str(tmp_path / "threads.o"), "-pthread"]
    done = subprocess.run([*command, "-o", str(tmp_path / "run")], capture_output=True, text=True, check=False)
    if "cannot find -l" in done.stderr:
        pytest.skip("the static C library is not installed")
    assert (done.returncode, done.stderr) == (0, "")
    shown = subprocess.run([str(tmp_path / "run")], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout == "4 threads, 1 0\n"
