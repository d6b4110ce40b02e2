"""What stands under a shield ends before Ctrl-C is handled; and unused handler of signals is lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from einkorn.dsl.diagnostics import shield
from einkorn.dsl.diagnostics.shield import interruptible, passes_signals, shielded, window
from einkorn.dsl.environment.compiling import compiling


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Python's own handler before and after each test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    actual = signal.signal(signal.SIGINT, before)
    assert actual is signal.default_int_handler


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_interrupt_comes_after() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):
        with shielded():
            interrupt()
            done.append("the rest")
        done.append("what follows")
    assert done == ["the rest"]


def test_shields_in_each_other() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        with shielded():
            interrupt()
        done.append("the rest of the outer one")
        interruptible()  # the only shield: here it may end
        done.append("nothing")
    assert done == ["the rest of the outer one"]


def test_a_place_to_end_within_two_shields_is_none() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        with shielded():
            interrupt()
            interruptible()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]


def test_without_an_interrupt_nothing_happens() -> None:
    with shielded():
        interruptible()
        with window():
            interruptible()
    interruptible()


def test_an_error_and_an_interrupt() -> None:
    """The interrupt is raised, with the error as its context."""
    with pytest.raises(KeyboardInterrupt) as caught, shielded():
        interrupt()
        raise ValueError("first")
    assert isinstance(caught.value.__context__, ValueError)


def test_a_window_receives_at_once_and_closes_again() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        try:
            with window():
                interrupt()
                done.append("nothing")
        finally:
            done.append("closed")
            interrupt()  # a second one waits
            done.append("all of it")
    assert done == ["closed", "all of it"]


def test_a_window_receives_what_came_before() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        interrupt()
        done.append("before")
        with window():
            done.append("nothing")
    assert done == ["before"]


def test_a_shield_in_a_window_holds() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), shielded(), window():
        with shielded():
            interrupt()
            done.append("the rest")
        done.append("nothing")
    assert done == ["the rest"]


def test_a_window_within_two_shields_stays_closed() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        with shielded(), window():
            interrupt()
            done.append("the rest")
        done.append("outer")
    assert done == ["the rest", "outer"]


def test_the_programs_own_handler_is_called_once_after() -> None:
    calls: list[Any] = []

    def own(number: int, frame: Any) -> None:
        calls.append((number, frame is not None))

    signal.signal(signal.SIGINT, own)
    with shielded():
        interrupt()
        interrupt()
        assert not calls
    assert calls == [(signal.SIGINT, True)]
    assert signal.getsignal(signal.SIGINT) is own
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_handler_that_raises_what_it_likes() -> None:
    class Stop(Exception):
        pass

    def own(number: int, frame: Any) -> None:
        raise Stop

    signal.signal(signal.SIGINT, own)
    with pytest.raises(Stop), shielded():
        interrupt()
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is own


@pytest.mark.parametrize("how", [signal.SIG_IGN, signal.SIG_DFL])
def test_signals_that_are_ignored_or_end_the_process_stay_so(how: Any) -> None:
    signal.signal(signal.SIGINT, how)
    with shielded(), window(), shielded():
        assert signal.getsignal(signal.SIGINT) is how
        if how is signal.SIG_IGN:
            interrupt()
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is how


def test_a_handler_that_is_set_within_stays() -> None:
    def own(number: int, frame: Any) -> None: ...

    with shielded():
        signal.signal(signal.SIGINT, own)
    assert signal.getsignal(signal.SIGINT) is own
    with shielded(), window():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_other_threads_neither_wait_nor_disturb() -> None:
    """Their shields do nothing; the main thread is interrupted as ever, or shielded by its own."""
    inside, over = threading.Event(), threading.Event()

    def other() -> None:
        with shielded(), window(), shielded():
            inside.set()
            over.wait(30)
            interruptible()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(30)
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        interrupt()
        over.set()
        thread.join(30)
        done.append("the rest")
    assert done == ["the rest"] and not thread.is_alive()


# *** functions that handlers' exceptions leave unchanged ***


class Timeout(TimeoutError):
    pass


def raises(error: BaseException) -> None:
    def own(number: int, frame: Any) -> None:
        raise error

    signal.signal(signal.SIGINT, own)


@pytest.mark.parametrize("where", ["alone", "shielded", "in an except clause", "nested", "swallowed", "finally"])
def test_what_a_handler_raises_passes(where: str) -> None:
    """Through clauses that catch exceptions, and through all that only ends with it."""
    error = Timeout("now")

    @passes_signals
    def work() -> str:
        try:
            if where == "shielded":
                with shielded():
                    interrupt()
            elif where == "nested":
                passes_signals(interrupt)()
            elif where == "swallowed":
                with suppress(BaseException):  # a finalizer, a callback of native code
                    interrupt()
            else:
                interrupt()
        except Exception as caught:
            return f"caught {caught}"
        finally:
            if where == "finally":
                raise OSError("of a clause that ends the work")
        return "done"

    before = signal.getsignal(signal.SIGINT)
    raises(error)
    own = signal.getsignal(signal.SIGINT)
    with pytest.raises(Timeout) as actual:
        if where == "in an except clause":
            try:
                raise KeyError("first")
            except KeyError:
                work()
        else:
            work()
    assert actual.value is error and error.__cause__ is None
    assert isinstance(error.__context__, KeyError) == (where == "in an except clause")
    assert signal.signal(signal.SIGINT, before) is own


def test_handlers_that_raise_nothing_run_at_once() -> None:
    calls: list[int] = []

    def own(number: int, frame: Any) -> None:
        calls.append(number)

    before = signal.signal(signal.SIGINT, own)

    @passes_signals
    def work() -> int:
        interrupt()
        return len(calls)

    assert work() == 1
    assert signal.signal(signal.SIGINT, before) is own


def test_signals_after_the_first_exception_wait_for_the_end() -> None:
    error, calls = Timeout("now"), []

    def own(number: int, frame: Any) -> None:
        calls.append(number)
        if len(calls) == 1:
            raise error

    before = signal.signal(signal.SIGINT, own)

    @passes_signals
    def work() -> None:
        try:
            interrupt()
        finally:
            interrupt()
            calls.append(0)

    with pytest.raises(Timeout) as actual:
        work()
    assert actual.value is error and calls == [signal.SIGINT, 0, signal.SIGINT]
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the setting is read from Linux's structure")
def test_system_calls_go_on_after_a_signal_as_before() -> None:
    before = signal.signal(signal.SIGINT, lambda *_: None)
    signal.siginterrupt(signal.SIGINT, False)

    @passes_signals
    def work() -> None:
        with shielded(), window():
            pass

    work()
    assert shield._restarts(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_other_errors_and_results_of_the_work_stay() -> None:
    @passes_signals
    def work(fails: bool, *, result: int) -> int:
        if fails:
            raise KeyError(result)
        return result

    assert work(False, result=3) == 3
    with pytest.raises(KeyError):
        work(True, result=4)


# *** work of the compiler ***


def test_compilations_have_frames_of_their_own() -> None:
    """A caller that is deep in calls has few left, or none below the limit for compilations: then a thread has them."""

    def nested(depth: int) -> int:
        return depth and nested(depth - 1) + 1

    limit = sys.getrecursionlimit()
    assert compiling(nested)(5000) == 5000

    def deep(left: int) -> int:
        return deep(left - 1) if left else compiling(nested)(6000)

    assert deep(limit - 200) == 6000
    sys.setrecursionlimit(6000)
    try:
        assert deep(5000) == 6000
        with pytest.raises(RecursionError):
            deep(6500)
    finally:
        sys.setrecursionlimit(limit)
    assert sys.getrecursionlimit() == limit
