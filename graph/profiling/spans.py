"""Measures parts of a program that its author names: `with span("load"):`, or `@span("load")`.

A span is in every profile that is open when it begins. It is a range of NVTX, too, where the package nvtx is installed:
Nsight Systems shows it.

See also `profile`, `profile_page` (how profiles are shown).
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from types import ModuleType, TracebackType
from typing import Any, Final, TypeVar

from ..arguments import text_of
from .profile import AMBIENT, OPEN, Profile

F = TypeVar("F", bound=Callable[..., Any])
Begun = tuple[int, tuple[Profile, ...], Any]  # the time, the profiles, and the range of NVTX

_begun: Final[ContextVar[tuple[Begun, ...]]] = ContextVar("spans", default=())  # of this thread or task


class span:
    """A part of a program, as a `with` block or around a function, which may be asynchronous.

    Args:
        name: what profiles call it.
        details: what a trace shows with it.

    Raises:
        GraphError: EK0478 the name is not a text.
    """

    __slots__ = ("details", "name")

    def __init__(self, name: str, **details: Any) -> None:
        self.name = text_of("name", name)
        self.details = details

    def __enter__(self) -> span:
        nvtx = _nvtx()
        marked = None if nvtx is None else nvtx.start_range(message=self.name)
        profiles = (*OPEN, *AMBIENT[-1:]) if OPEN or AMBIENT else ()
        _begun.set((*_begun.get(), (time.perf_counter_ns(), profiles, marked)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        *before, (start, profiles, marked) = _begun.get()
        _begun.set(tuple(before))
        for profile in dict.fromkeys(profiles):
            profile.add("span", self.name, "", start, self.details)
        nvtx = _nvtx()
        if nvtx is not None and marked is not None:
            nvtx.end_range(marked)

    async def __aenter__(self) -> span:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, at)

    def __call__(self, function: F) -> F:
        """The function with a span around each call."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: object, **kwargs: object) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> Any:
            with self:
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"span({self.name!r})"


@functools.cache
def _nvtx() -> ModuleType | None:
    """The package nvtx, if it is installed."""
    try:
        import nvtx  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except Exception:  # whatever a foreign package raises when it is imported
        return None
    return nvtx if hasattr(nvtx, "start_range") and hasattr(nvtx, "end_range") else None


@contextmanager
def record(path: str | PathLike[str] | None = None) -> Iterator[Profile]:
    """Measures the spans of this process within a `with` block, and the models of all sessions that are made in it.

    Args:
        path: where to write the trace in Chrome's trace event format, for chrome://tracing or Perfetto.
    """
    profile = Profile()
    AMBIENT.append(profile)
    try:
        yield profile
    finally:
        AMBIENT.remove(profile)
        if path is not None:
            profile.save(path)
