"""Reads all `EINKORN_*` environment variables, in one typed table.

`knobs.cache_dir` reads `EINKORN_CACHE_DIR` anew at every access, so a program may set `os.environ` at any time before
the work it concerns. A variable that starts with `EINKORN_` and is not in the table is an error, found at the first
access to any knob: a misspelt switch that silently does nothing costs more than one that stops.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from ..contract.checks import parse_checks
from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import EinkornError, did_you_mean, nearest

PREFIX = "EINKORN_"
STAGES = ("typed", "mlir", "llvm", "asm")
SASS = "sass"  # machine code of NVIDIA's GPUs: a stage that is shown, and that no compilation goes through
SHOWN_STAGES = (*STAGES, SASS)
LOG_LEVELS = ("debug", "info", "warning", "error")

T = TypeVar("T")


class KnobError(EinkornError, ValueError):
    """An environment variable of Einkorn that is unknown (EK0691) or whose text says nothing (EK0692)."""


@dataclass(frozen=True)
class Knob(Generic[T]):
    """One environment variable. As a class attribute it is also the property that reads it.

    Attributes:
        name: the variable's name.
        kind: what its text may be, in words; for messages and the table in the docs.
        default: the value when the variable is unset or empty.
        parse: text to value; raises ValueError when the text does not fit `kind`.
        doc: one sentence.
    """

    name: str
    kind: str
    default: T
    parse: Callable[[str], T]
    doc: str

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Knob[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Knob[T] | T:
        if instance is None:
            return self
        if not _checked:
            check_environment()
        return self.read(os.environ.get(self.name, ""))

    def read(self, text: str) -> T:
        """The value that `text` means. Raises KnobError (EK0692) when it means none."""
        if not text.strip():
            return self.default
        try:
            return self.parse(text.strip())
        except ValueError:
            raise self.refusal(text) from None

    def refusal(self, text: str, known: Iterable[str] = ()) -> KnobError:
        """The error for a text that means none of its values; `known` are words that do."""
        return KnobError(
            f"the environment variable {self.name} is {text!r}, which is not {self.kind}",
            code="EK0692",
            argument=self.name,
            expected=self.kind,
            got=text,
            hint=did_you_mean(text, known),
        )


def kept_at(knob: Knob[Any]) -> tuple[Mapping[Any, Any], Any]:
    """The dict in which `os.environ` keeps a variable, and its key there: a look that generated code can take, too."""
    kept: Mapping[Any, Any] = getattr(os.environ, "_data", {})
    return kept, os.environ.encodekey(knob.name)


def _parse_bool(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def _parse_count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


def _parse_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < 1e9:
        raise ValueError(text)
    return seconds


def _parse_level(text: str) -> int:
    level = int(text)
    if not 0 <= level <= 3:
        raise ValueError(text)
    return level


def _parse_seed(text: str) -> int:
    seed = int(text)
    if not 0 <= seed < 1 << 63:
        raise ValueError(text)
    return seed


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(text)
        return text.lower()

    return parse


def _parse_names(text: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in text.split(","))


def _parse_settings(text: str) -> dict[str, str | None]:
    pairs = [word.partition("=") for word in text.split(",")]
    return {name.strip(): value.strip() if equals else None for name, equals, value in pairs}


def _parse_checks(text: str) -> str:
    try:
        return str(parse_checks(text.lower()))
    except EinkornError:
        raise ValueError(text) from None


_SWITCH_WORDS = "a switch (1 or 0, on or off)"


class Knobs:
    """The table: one line a knob. Use the instance `knobs`."""

    cache: Knob[bool] = Knob(
        "EINKORN_CACHE", _SWITCH_WORDS, True, _parse_bool, "Whether compiled code is kept on disk between processes."
    )
    cache_dir: Knob[Path | None] = Knob(
        "EINKORN_CACHE_DIR",
        "a folder",
        None,
        lambda text: Path(os.path.expanduser(text)),
        "Where compiled code is kept, instead of the user's cache folder.",
    )
    checks: Knob[str | None] = Knob(
        "EINKORN_CHECKS",
        "off, safe or all, with +nan or +inf behind it if wanted",
        None,
        _parse_checks,
        "What code checks as it runs, where neither the session nor the build says it.",
    )
    debug: Knob[dict[str, str | None] | None] = Knob(
        "EINKORN_DEBUG",
        "a list, separated by commas, of settings of InferenceSession.debug: nan-check, assert-level=all",
        None,
        _parse_settings,
        "The settings of `InferenceSession.debug` that a program starts with.",
    )
    doors: Knob[bool] = Knob(
        "EINKORN_DOORS",
        _SWITCH_WORDS,
        True,
        _parse_bool,
        "Whether repeated calls go through generated functions instead of Python.",
    )
    dump: Knob[frozenset[str]] = Knob(
        "EINKORN_DUMP",
        "a list, separated by commas, of stages and passes",
        frozenset(),
        _parse_names,
        "Which stages and passes of each compilation print what they give to standard error.",
    )
    interpret: Knob[bool] = Knob(
        "EINKORN_INTERPRET",
        _SWITCH_WORDS,
        False,
        _parse_bool,
        "Whether sessions interpret kernels instead of compiling them, unless they say so themselves.",
    )
    stop: Knob[str | None] = Knob(
        "EINKORN_STOP", "a stage or a pass", None, str.lower, "The stage or the pass after which compilation ends."
    )
    log: Knob[str] = Knob(
        "EINKORN_LOG",
        f"one of {', '.join(LOG_LEVELS[:-1])} or {LOG_LEVELS[-1]}",
        "warning",
        _one_of(LOG_LEVELS),
        "How much is logged; debug also shows Einkorn's own frames in Python's traces.",
    )
    no_jit: Knob[bool] = Knob(
        "EINKORN_NO_JIT",
        _SWITCH_WORDS,
        False,
        _parse_bool,
        "Forbids compiling at load time: only code from packages runs.",
    )
    optimize: Knob[int] = Knob(
        "EINKORN_OPTIMIZE",
        "0, 1, 2 or 3",
        3,
        _parse_level,
        "How much LLVM optimises code for this machine: with 0 it is made sooner, and runs several times as long.",
    )
    verify: Knob[bool] = Knob(
        "EINKORN_VERIFY",
        _SWITCH_WORDS,
        False,
        _parse_bool,
        "Whether the typed program is verified after every pass, and not just before it is lowered.",
    )
    verify_fusion: Knob[bool] = Knob(
        "EINKORN_VERIFY_FUSION",
        _SWITCH_WORDS,
        False,
        _parse_bool,
        "Whether each call of a graph compares fused kernels with their ops, run one by one.",
    )
    without: Knob[frozenset[str]] = Knob(
        "EINKORN_WITHOUT",
        "a list, separated by commas, of passes over graphs",
        frozenset(),
        _parse_names,
        "Which passes of the graph optimiser are left out; `graph` leaves out all.",
    )
    progress: Knob[bool] = Knob(
        "EINKORN_PROGRESS",
        _SWITCH_WORDS,
        True,
        _parse_bool,
        "Whether compilations of more than a second show how far they are, on a terminal or in a notebook.",
    )
    num_threads: Knob[int | None] = Knob(
        "EINKORN_NUM_THREADS",
        "a whole number from 1",
        None,
        _parse_count,
        "How many threads a CPU op may use, instead of one for each core.",
    )
    collective_timeout: Knob[float] = Knob(
        "EINKORN_COLLECTIVE_TIMEOUT",
        "a number of seconds, or 0 for no limit",
        300.0,
        _parse_seconds,
        "How many seconds a rank waits for the other ranks of a collective before it fails.",
    )
    nccl: Knob[str] = Knob(
        "EINKORN_NCCL",
        "one of auto, on or off",
        "auto",
        _one_of(("auto", "on", "off")),
        "Whether ranks exchange tensors of GPUs by NCCL or RCCL: where they can, always or never.",
    )
    trust: Knob[Path | None] = Knob(
        "EINKORN_TRUST",
        "a file",
        None,
        lambda text: Path(os.path.expanduser(text)),
        "The trust policy, instead of trust.toml in the user's configuration folder.",
    )
    sim_seed: Knob[int] = Knob(
        "EINKORN_SIM_SEED",
        "a whole number from 0 to 2**63 - 1",
        0,
        _parse_seed,
        "What the order of threads is drawn from on a simulated GPU; 0 leaves them in order.",
    )
    sim_schedule: Knob[str | None] = Knob(
        "EINKORN_SIM_SCHEDULE",
        "a schedule of threads, as errors say it",
        None,
        str,
        "The order of threads on a simulated GPU, where the program says neither a schedule nor a seed.",
    )


knobs = Knobs()
_checked = False


def all_knobs() -> tuple[Knob[Any], ...]:
    """Every knob, by name."""
    return tuple(sorted((k for k in vars(Knobs).values() if isinstance(k, Knob)), key=lambda knob: knob.name))


def check_environment(names: Iterable[str] | None = None) -> None:
    """Looks for unknown `EINKORN_*` variables in the environment, or among `names`.

    Raises:
        KnobError (EK0691): for the first unknown one, with the nearest known names.
    """
    global _checked
    known = [knob.name for knob in all_knobs()]
    for name in sorted(os.environ if names is None else names):
        if name.startswith(PREFIX) and name not in known:
            # Without the prefix that all share, or every knob would look like every other.
            near = nearest(name.removeprefix(PREFIX), [item.removeprefix(PREFIX) for item in known])
            raise KnobError(
                f"the environment variable {name} is unknown to Einkorn",
                code="EK0691",
                argument=name,
                expected=known,
                got=name,
                notes=[f"known are {', '.join(known)}"],
                hint=f"did you mean {' or '.join(PREFIX + item for item in near)}?" if near else None,
            )
    _checked = True
