"""Holds the settings of sessions for debugging: `InferenceSession.debug`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from ...dsl.contract.checks import SAFE, Checks, parse_checks
from ...dsl.diagnostics.errors import GraphError, did_you_mean
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.knobs import STAGES, Knobs, knobs
from ...dsl.environment.log import LEVELS, show_log
from ...dsl.environment.tracebacks import show_internals
from ..arguments import CODE, choice_of, flag_of, path_of, text_of
from ..findings.prints import PrintOptions
from ..staging.debug import GRAPH_DEBUG
from ..staging.graph import Graph

T = TypeVar("T")
ASSERT_LEVELS = {"": "safe", "none": "off", "warn": "safe", "safe": "safe", "all": "all"}


class PrintStyle(Enum):
    """How `ops.print` shows tensors: see `InferenceSession.set_print_options`."""

    COMPACT = "compact"
    FULL = "full"
    BINARY = "binary"
    NONE = "none"


def _assert_level(name: str, value: object) -> str:
    return choice_of(name, getattr(value, "value", value), ASSERT_LEVELS, CODE)


def _log_level(name: str, value: object) -> str:
    given = text_of(name, getattr(value, "value", value))
    choice_of(name, given.lower(), ("", *LEVELS), CODE)
    return given


def _print_style(name: str, value: object) -> PrintStyle:
    if isinstance(value, PrintStyle):
        return value
    given = value.lower() if isinstance(value, str) else value
    return PrintStyle(choice_of(name, given, [style.value for style in PrintStyle], CODE))


class Setting(Generic[T]):
    """A property of `DebugConfig`: its default, how a value is read, and what happens when it is set."""

    def __init__(
        self, default: T, read: Callable[[str, Any], T], doc: str, effect: Callable[[T], None] | None = None
    ) -> None:
        self.default, self.read, self.effect, self.__doc__ = default, read, effect, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, config: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, config: DebugConfig, owner: type) -> T: ...
    def __get__(self, config: DebugConfig | None, owner: type) -> Setting[T] | T:
        if config is None:
            return self
        value: T = config.values.get(self.name, self.default)
        return value

    def __set__(self, config: DebugConfig, value: object) -> None:
        read = self.read(self.name, value)
        config.values[self.name] = read
        if self.effect is not None:
            self.effect(read)


def _crash_traces(wanted: bool) -> None:
    import faulthandler  # few processes need it

    if wanted:
        faulthandler.enable()
    else:
        faulthandler.disable()


class DebugConfig:
    """Settings for debugging, which all sessions of the process share. What concerns code holds for the graphs that
    are loaded from then on. `EINKORN_DEBUG=nan-check,assert-level=all` sets them before a program starts."""

    nan_check = Setting(False, flag_of, "Stops a call at the first NaN that an op stores: `checks=` with +nan.")
    uninitialized_read_check = Setting(
        False, flag_of, "Stops a call whose results depend on uninitialised memory, as `checks='all'` does."
    )
    device_sync_mode = Setting(False, flag_of, "Lets each call wait for its device, so that errors come with it.")
    stack_trace_on_error = Setting(
        False, flag_of, "Shows Einkorn's own frames in Python's traces, too.", effect=show_internals
    )
    stack_trace_on_crash = Setting(
        False, flag_of, "Shows Python's stack where the process ends by a signal.", effect=_crash_traces
    )
    op_log_level = Setting(
        "",
        _log_level,
        "How much Einkorn logs: notset, trace, debug, info, warning, error or critical; '' leaves it as it is.",
        effect=lambda level: show_log(level.lower()) if level else None,
    )
    assert_level = Setting(
        "",
        _assert_level,
        "What kernels check unless a session sets it: '' and 'safe' and 'warn' asserts, 'none' nothing, 'all'.",
    )
    print_style = Setting(PrintStyle.COMPACT, _print_style, "How `ops.print` shows tensors unless a session sets it.")
    ir_output_dir = Setting(
        "",
        path_of,
        "Where the texts of each graph that is loaded go: NAME.graph, .typed, .mlir and so on; '' for none.",
    )

    def __init__(self) -> None:
        self._values: dict[str, object] | None = None
        self._sensible = False

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and not hasattr(type(self), name):
            known = [each for each in SETTINGS if hasattr(type(self), each)]
            hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
            text = f"InferenceSession.debug has no setting '{name}'"
            raise GraphError(text, code=CODE, place=user_place(), argument=name, expected=known, hint=hint)
        super().__setattr__(name, value)

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (_shared, ()) if self is DEBUG else super().__reduce__()

    @property
    def values(self) -> dict[str, Any]:
        """What is set, by name; at first what `EINKORN_DEBUG` says."""
        if self._values is None:
            self._values = {}
            self._read_environment()
        return self._values

    def _read_environment(self) -> None:
        for name, value in (knobs.debug or {}).items():
            named = {"sensible": "sensible_mode"}.get(name, name.replace("-", "_"))
            owner = GRAPH_DEBUG if named == "source_tracebacks" else self
            if named not in SETTINGS:
                raise Knobs.debug.refusal(name, [each.replace("_", "-") for each in SETTINGS])
            setattr(owner, named, True if value is None else value)

    @property
    def sensible_mode(self) -> bool:
        """Sets what is worth having while a program is debugged: NaN checks, all asserts, waiting, and stack traces."""
        return self._sensible

    @sensible_mode.setter
    def sensible_mode(self, value: bool) -> None:
        self._sensible = on = flag_of("sensible_mode", value)
        for name in ("nan_check", "device_sync_mode", "stack_trace_on_error", "stack_trace_on_crash"):
            setattr(self, name, on)
        self.assert_level = "all" if on else ""
        GRAPH_DEBUG.source_tracebacks = on

    def reset(self) -> None:
        """Sets everything to its default, whatever the environment says."""
        for name in self.values:
            effect = getattr(type(self), name).effect
            if effect is not None and name != "op_log_level":
                effect(False)
        self._values, self._sensible = {}, False
        GRAPH_DEBUG.reset()

    # *** what sessions read ***

    def checks(self, said: Checks | None) -> Checks | None:
        """The checks of a graph, where the session says these or none."""
        wanted = said
        if said is None and (self.assert_level or self.nan_check or self.uninitialized_read_check):
            wanted = SAFE if knobs.checks is None else parse_checks(knobs.checks)
            wanted = replace(wanted, level=ASSERT_LEVELS[self.assert_level]) if self.assert_level else wanted
        if wanted is None:
            return None
        if self.uninitialized_read_check:
            wanted = replace(wanted, level="all")
        return replace(wanted, finds="nan") if self.nan_check and not wanted.finds else wanted

    def prints(self, said: PrintOptions) -> PrintOptions:
        """How tensors are printed, where the session says this."""
        if self.print_style is PrintStyle.COMPACT or said != PrintOptions():
            return said
        binary = self.print_style is PrintStyle.BINARY
        return PrintOptions(self.print_style.value, None, Path(self.ir_output_dir or ".") if binary else None)

    def keep(self, graph: Graph) -> None:
        """Writes the text of a graph that is loaded, and on the host of the stages of its code, where `ir_output_dir`
        says so."""
        if not self.ir_output_dir:
            return
        folder = Path(self.ir_output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"graph": str(graph)}
        if all(device.to_device().is_host for device in graph.ir.devices):
            texts |= {stage: graph.code(stage) for stage in STAGES}
        for stage, text in texts.items():
            (folder / f"{graph.name.replace('/', '_')}.{stage}").write_text(text + "\n", encoding="utf-8")


SETTINGS = ("sensible_mode", "source_tracebacks", *(n for n, v in vars(DebugConfig).items() if isinstance(v, Setting)))
DEBUG = DebugConfig()


def _shared() -> DebugConfig:
    """The settings of this process, which a copy of them stands for."""
    return DEBUG
