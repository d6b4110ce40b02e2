"""Forks while other threads compile: no child waits for a thread that it does not have."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from einkorn.dsl import diagnostics
from einkorn.dsl.diagnostics.cached import cached

SUPPORT = Path(__file__).parents[1] / "support"
COUNT = int(os.environ.get("EINKORN_TEST_FORKS", "3"))
PATIENCE = 300.0 + 10 * COUNT  # seconds

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@pytest.mark.parametrize("seed", [0])
def test_children_compile_call_and_fork(seed: int, tmp_path: Path) -> None:
    """At random moments while three threads compile; seed 0 begins while the compiler is imported."""
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(tmp_path), "EINKORN_NUM_THREADS": "2"}
    command = [sys.executable, str(SUPPORT / "forked.py"), str(COUNT), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout.splitlines()[-1:], done.returncode) == ([f"right {COUNT}"], 0), done.stdout + done.stderr


def run_script(text: str) -> None:
    """Runs a program that says `ok`."""
    head = """
        import os, signal, sys, threading, time, warnings
        from einkorn.dsl.diagnostics import forks
        from einkorn.dsl.diagnostics.shield import interruptible, shielded
        warnings.simplefilter("ignore")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        begun = threading.Event()

        def child(work):
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)
                os._exit(0 if work() else 1)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        """
    script = textwrap.dedent(head) + textwrap.dedent(text) + "\nprint('ok')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_a_fork_waits_for_the_section_of_another_thread() -> None:
    run_script(
        """
        ended = []
        def work():
            with shielded():
                begun.set()
                time.sleep(0.3)
                ended.append("section")
        threading.Thread(target=work).start()
        begun.wait()
        assert child(lambda: ended == ["section"]) == 0
        """
    )


def test_a_fork_comes_where_a_section_may_be_interrupted() -> None:
    run_script(
        """
        over = threading.Event()
        def work():
            with shielded():
                begun.set()
                while not over.is_set():
                    interruptible()
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        assert child(lambda: forks.sections() == 0) == 0
        over.set()
        thread.join()
        assert not forks._sections and not forks._forks
        """
    )


def test_an_interrupt_ends_the_wait_and_the_child() -> None:
    run_script(
        """
        over, pids = threading.Event(), []
        def work():
            with shielded():
                begun.set()
                over.wait()
        threading.Thread(target=work).start()
        begun.wait()
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        before = signal.getsignal(signal.SIGINT)
        try:
            pid = os.fork()
            if pid == 0:
                os._exit(7)
            raise AssertionError("the fork was not interrupted")
        except KeyboardInterrupt:
            pass
        assert signal.getsignal(signal.SIGINT) is before
        assert os.waitstatus_to_exitcode(os.wait()[1]) == forks.INTERRUPTED
        over.set()
        assert child(lambda: True) == 0
        """
    )


def test_a_fork_within_a_section_and_with_a_lock() -> None:
    """Both are still held in the child, and released there."""
    run_script(
        """
        lock = forks.fork_lock()
        def work():
            return forks.sections() == 1 and lock._is_owned()
        with shielded(), lock:
            assert child(work) == 0
        pid = None
        with shielded():
            with lock:
                pid = os.fork()
            if pid == 0:
                os._exit(0 if forks.sections() == 1 and not lock._is_owned() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not forks.sections()
        """
    )


def test_locks_of_other_threads_are_free_in_the_child() -> None:
    run_script(
        """
        lock, over = forks.fork_lock(), threading.Event()
        def work():
            with lock:
                begun.set()
                over.wait()
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        assert child(lambda: lock.acquire(timeout=30)) == 0
        assert not lock.acquire(blocking=False)
        over.set()
        thread.join()
        """
    )


def test_a_section_begins_although_a_fork_waits_too_long() -> None:
    """A thread in a section waits for one that begins a section: neither waits for ever."""
    run_script(
        """
        def inner():
            with shielded():
                begun.set()
        def outer():
            with shielded():
                started.set()
                thread = threading.Thread(target=inner)
                while not forks.is_forking():
                    time.sleep(0.01)
                thread.start()
                begun.wait()
        started = threading.Event()
        threading.Thread(target=outer).start()
        started.wait()
        assert child(begun.is_set) == 0
        """
    )


def test_settings_of_the_process_are_put_back_in_the_child_and_by_the_last_thread() -> None:
    run_script(
        """
        from einkorn.dsl.environment.process_settings import ProcessSetting
        before, over = sys.getrecursionlimit(), threading.Event()
        setting = ProcessSetting(sys.getrecursionlimit, sys.setrecursionlimit, lambda limit: limit + 500)
        def work():
            with setting.changed():
                begun.set()
                over.wait()
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        with setting.changed():
            assert sys.getrecursionlimit() == before + 500
        assert sys.getrecursionlimit() == before + 500
        assert child(lambda: sys.getrecursionlimit() == before) == 0
        with setting.changed():
            over.set()
            thread.join()
            assert child(lambda: sys.getrecursionlimit() == before + 500) == 0
        assert sys.getrecursionlimit() == before
        """
    )


def test_no_attribute_has_the_lock_that_functools_has_in_python_3_11() -> None:
    root = Path(diagnostics.__path__[0]).parents[1]
    files = [file for floor in ("dsl", "compiler", "graph", "stdlib") for file in (root / floor).rglob("*.py")]
    assert len(files) > 100 and not [file for file in files if "functools import cached_property" in file.read_text()]

    class Thing:
        made = 0

        @cached
        def value(self) -> int:
            """What it is."""
            self.made += 1
            return 7

    thing = Thing()
    assert [thing.value, thing.value, thing.made] == [7, 7, 1] and vars(Thing)["value"].__doc__ == "What it is."
    assert not isinstance(vars(Thing)["value"], functools.cached_property)
