"""Defines the errors, one tree of them, and how each is shown.

Every error a user can cause derives from `EinkornError` and carries a stable code, the place in the user's own text,
and (where they apply) the op, the argument, what was expected and what came. The class says whose fault it is; only
`InternalError` is ours.

Codes: EK01xx syntax and names, EK02xx types, EK03xx signatures and dims, EK04xx graphs, EK05xx packages, EK06xx
targets and the toolchain, EK07xx what fails at run time, EK08xx devices and memory, EK09xx our own faults.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from .codes import MEANINGS
from .places import Label, Place, draw
from .shield import raise_if_of_handler
from .shown import traceback_lines

Failure = TypeVar("Failure", bound="EinkornError")


class EinkornError(Exception):
    """The root of the tree.

    Args:
        message: one sentence without a full stop, naming what is wrong.
        code: the stable code, `EKnnnn`.
        place: where in the user's text; drawn with carets when the text is at hand.
        labels: further remarks under places (`place` itself is drawn as the primary one when labels name no primary).
        notes: facts that help, one sentence each; a pair adds a place.
        hint: what to write instead.
        op, argument, expected, got: the parts of the message for programs that want to handle it.
        chain: the places of the calls that led to `place`, innermost first.

    Attributes:
        severity: "error"; or "warning" for a `Remark`.
        endless: whether it is found only by all the work that one compilation may take: it is not looked for again.
        internals: whether the frames of Einkorn belong into its traceback.
    """

    endless = False
    internals = False
    severity = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str,
        place: Place | None = None,
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        hint: str | None = None,
        op: str | None = None,
        argument: str | None = None,
        expected: Any = None,
        got: Any = None,
        chain: Iterable[Place] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.place = place
        self.labels = tuple(labels)
        self.notes = list(notes)
        self.hint = hint
        self.op = op
        self.argument = argument
        self.expected = expected
        self.got = got
        self.chain = tuple(chain)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values: what `--format json` prints as one line. A place is shown as the text shows it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "meaning": self.meaning,
            "place": self.place.to_dict() if self.place else None,
            "labels": [{"place": x.place.to_dict(), "text": x.text, "primary": x.primary} for x in self.labels],
            "notes": list(self.notes),
            "hint": self.hint,
            "op": self.op,
            "argument": self.argument,
            "expected": _plain(self.expected),
            "got": _plain(self.got),
            "chain": [place.to_dict() for place in self.chain],
        }

    @property
    def meaning(self) -> str | None:
        """What the code stands for, in one sentence; None for a code that is not Einkorn's own."""
        return MEANINGS.get(self.code)

    def __str__(self) -> str:
        head = f"{self.severity}[{self.code}]: {self.message}"
        lines = [f"{self.place}: {head}" if self.place else head]
        labels = self.labels
        if self.place and not any(label.primary for label in labels):
            labels = (Label(self.place), *labels)
        if labels:
            lines += draw(labels)
        lines += [f"note: {note}" for note in self.notes]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, _portable(self.__dict__))

    def _render_traceback_(self) -> list[str]:
        """What IPython and Jupyter show: the user's own lines, the message with its place; nothing of Einkorn."""
        return traceback_lines(self, self.internals)


def _restored(kind: type[Failure], args: tuple[object, ...], state: dict[str, Any]) -> Failure:
    """An error that was pickled or copied: its class is not called, since classes take other arguments."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _portable(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an error; a value of the user's that cannot be pickled is replaced by its text."""
    attributes = dict(state)
    for name in ("expected", "got"):
        try:
            pickle.dumps(attributes.get(name))
        except Exception as error:
            raise_if_of_handler(error)
            attributes[name] = brief(attributes[name])
    return attributes


class CompileError(EinkornError):
    """A kernel that cannot be compiled as written: syntax, names, types, or what a target lacks."""


class Remark(CompileError):
    """What `check` and `build` say of a kernel that can be used, but hardly as it was meant. It is never raised."""

    severity = "warning"


class Several(EinkornError):
    """Several independent mistakes, found in one go. `errors` holds each; `more` says that there may be others."""

    def __init__(self, errors: Sequence[EinkornError], more: bool = False) -> None:
        first = errors[0]
        super().__init__(first.message, code=first.code, place=first.place)
        self.errors = list(errors)
        self.more = more

    def __str__(self) -> str:
        return "\n\n".join(str(error) for error in self.errors) + f"\n\n{counted(len(self.errors), self.more)}"


class CompileErrors(Several, CompileError):
    """Several mistakes of kernels."""


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 axis`, `2 axes`, `3 entries`, `0 values`."""
    several = {"axis": "axes", "entry": "entries"}.get(noun, f"{noun}s")
    return f"{count} {noun if count == 1 else several}"


def counted(errors: int, more: bool = False) -> str:
    """`3 errors`; where the search for more was ended early, that there may be more."""
    text = plural(errors, "error")
    return f"{text}, and there may be more: the search in a kernel was ended early" if more else text


def joined(errors: Iterable[EinkornError], more: bool = False, files: Iterable[object] = ()) -> EinkornError:
    """One error, or all of them in one, each once, in the order of their files and of the text."""
    listed = list(errors)
    errors_once = without_repeats((part for error in listed for part in each_of(error)), files)
    return errors_once[0] if len(errors_once) == 1 else CompileErrors(errors_once, more or any(map(has_more, listed)))


def each_of(error: EinkornError) -> list[EinkornError]:
    """The errors that one stands for: itself, or several."""
    return list(getattr(error, "errors", [error]))


def has_more(error: EinkornError) -> bool:
    """Whether the search for errors was ended early."""
    return (isinstance(error, Several) and error.more) or is_endless(error)


def is_endless(error: EinkornError) -> bool:
    """Whether one of the errors is `endless`."""
    return any(part.endless for part in each_of(error))


def without_repeats(errors: Iterable[Failure], files: Iterable[object] = ()) -> list[Failure]:
    """The errors of several looks at files, in their order, each once."""
    return in_order(unlike(errors), files)


def unlike(errors: Iterable[Failure], kept: Iterable[EinkornError] = ()) -> list[Failure]:
    """Those of these errors that say something new, each once, next to those that are `kept`.

    Two errors are one mistake when they are at one place, with one code, and with texts that differ only in types and
    numbers: what is wrong with a helper for one dtype is not reported again for each of the others.
    """
    known = {_mistake(error) for error in kept}
    by_mistake: dict[object, Failure] = {}
    for error in errors:
        by_mistake.setdefault(_mistake(error), error)
    return [error for mistake, error in by_mistake.items() if mistake not in known]


_QUOTED_OR_TYPE = re.compile(
    r"""(?P<quoted>'[^']*'|"[^"]*"|`[^`]*`)|SIMD\[[^\]]*\]|\b[Bb]ool\b|\bInt\b|-?\b\d[\d.]*(?: [a-z]+)?|\b\w*\d\w*"""
    r"""|a compile-time (?:bool|int|float)\b|the compile-time (?:bool|int|float) \S+"""
)


def _mistake(error: EinkornError) -> tuple[Place | None, str, str]:
    """What errors have in common that are one mistake; without a place, that is their whole text."""
    return error.place, error.code, _without_types(error.message) if error.place else error.message


@lru_cache(1024)
def _without_types(message: str) -> str:
    """A message with its types, and its numbers and what they count, taken out; names in quotes stay."""
    return _QUOTED_OR_TYPE.sub(lambda match: match["quoted"] or "_", message)


def in_order(errors: Iterable[Failure], files: Iterable[object] = ()) -> list[Failure]:
    """Errors in the order of the text, file by file: `files`, then others as they appear; first what has no place."""
    listed = list(errors)
    names = list(dict.fromkeys([*map(str, files), *(error.place.file for error in listed if error.place)]))

    def position(error: Failure) -> tuple[int, int, int]:
        place = error.place
        return (-1, 0, 0) if place is None else (names.index(place.file), place.line, place.column)

    return sorted(listed, key=position)


class TargetError(CompileError):
    """An unknown target, or a tool that this target needs and that is not here."""


class GraphError(EinkornError, ValueError):
    """A graph that is wrong where it is written, or inputs that do not fit it at the call."""


class AxisError(GraphError, IndexError):
    """An axis that a tensor does not have."""


class ElementError(GraphError, IndexError):
    """An index of elements that a tensor does not have."""


class NoGraphError(GraphError, RuntimeError):
    """What a session is to load is not a graph."""


class DTypeError(EinkornError, TypeError, ValueError):
    """An element type that does not fit."""


class CallErrors(Several, GraphError, DTypeError):
    """Several mistakes of one call: of an op where it is staged, or of a model's inputs."""


def of_call(errors: Sequence[EinkornError]) -> EinkornError:
    """One mistake of a call, or all of them in one."""
    return errors[0] if len(errors) == 1 else CallErrors(errors)


class PackageError(EinkornError):
    """A kernel library or a `.pkg` that cannot be read, found or trusted."""


class OpAttributeError(PackageError, AttributeError):
    """An attribute of a library names an op that it does not have."""


class OpKeyError(PackageError, KeyError):
    """A subscript of a library names an op that it does not have."""

    __str__ = EinkornError.__str__


class UnpicklableError(EinkornError, TypeError):
    """An object that exists in one process only, and is pickled or copied."""

    @classmethod
    def of(cls, what: str, because: str, hint: str) -> UnpicklableError:
        """The error that `__reduce__` of such an object raises."""
        return cls(f"{what} cannot be pickled or copied: {because}", code="EK0872", got=what, hint=hint)


class DeviceError(EinkornError):
    """A device is not available, or memory is on another device."""


class ReplayError(GraphError, RuntimeError):
    """A call that cannot be captured or replayed."""


class KernelError(EinkornError, RuntimeError):
    """A kernel stopped itself at run time: a failed `assert`, a `raise`, or a check.

    Attributes:
        tensor, axis, index, extent: of an access out of bounds. `index` is a number, or the tuple of a whole index when
            `axis` is None.
        value: what was stored, when it was no number.
    """

    def __init__(
        self,
        message: str,
        *,
        tensor: str | None = None,
        axis: int | None = None,
        index: int | tuple[int, ...] | None = None,
        extent: int | tuple[int, ...] | None = None,
        value: float | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.tensor = tensor
        self.axis = axis
        self.index = index
        self.extent = extent
        self.value = value

    def to_dict(self) -> dict[str, Any]:
        access = {"tensor": self.tensor, "axis": self.axis, "index": _plain(self.index), "extent": _plain(self.extent)}
        return {**super().to_dict(), **access, "value": _plain(self.value)}


class InternalError(EinkornError):
    """A fault of Einkorn itself, never of its user; it requests a report.

    `reproducer` is the file that shows it again, once one is written.
    """

    internals = True
    reproducer: str = ""

    def __init__(self, message: str, **details: Any) -> None:
        details.setdefault("code", "EK0901")
        details.setdefault("hint", "this is a fault of Einkorn: please report it with the kernel that shows it")
        super().__init__(message, **details)


def _plain(value: Any) -> Any:
    """A value as JSON can say it; numbers that it cannot say, and everything else, as text."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    try:
        return str(value)
    except Exception as error:  # of a class of the user's
        raise_if_of_handler(error)
        return brief(value)


def brief(value: object, most: int = 60) -> str:
    """A value of the user's for a message; where its text fails, or its text is long, its type stands for it."""
    try:
        text = repr(value)
    except Exception as error:
        raise_if_of_handler(error)
        text = ""
    return text if text and len(text) <= most and text.isprintable() else f"a value of type {type(value).__name__}"


def shown_value(value: object) -> str:
    """A value of the user's with its type: `4 (int)`."""
    text, kind = brief(value), type(value).__name__
    return text if text == f"a value of type {kind}" else f"{text} ({kind})"


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The names most like `name`, best first; for 'did you mean' hints."""
    import difflib

    if len(name) == 1:  # a letter is not a misspelling of a Bessel function
        known = [each for each in known if not each[-1:].isdigit()]
    return difflib.get_close_matches(name, list(known), n=count, cutoff=0.6)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The hint sentence for a misspelt name, or None when nothing is near."""
    similar = nearest(name, known)
    return f"did you mean {' or '.join(repr(item) for item in similar)}?" if similar else None
