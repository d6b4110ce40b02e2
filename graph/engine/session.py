"""Makes graphs ready to run on a set of devices.

See also `loading.load` (how code is found and made), `engine.model` (calls).
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from ...dsl.contract.checks import parse_checks
from ...dsl.diagnostics.errors import DeviceError, NoGraphError, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.compiling import compiling
from ...dsl.environment.knobs import knobs
from ...dsl.environment.log import LEVELS, show_log
from ...dsl.environment.tracebacks import placed, without_internals
from ..arguments import CODE, choice_of, flag_of, int_of, list_of, wrong
from ..driver.devices import CPU, Device, DeviceRef, placed_on
from ..findings.prints import STYLES, PrintOptions
from ..ir import GraphIR
from ..loading.extensions import with_extensions
from ..profiling.profile import AMBIENT, OPEN, Profile
from ..staging.graph import Graph
from ..staging.kernels import Extensions, KernelLibrary
from .compiled import CompiledModel, LoadOptions
from .debug import ASSERT_LEVELS, DEBUG
from .model import Model

MOST_THREADS = 1024
MOST_DIGITS = 99


def _library(extensions: Extensions | None) -> KernelLibrary:
    return KernelLibrary(() if extensions is None else extensions)


class InferenceSession:
    """Loads graphs for a set of devices.

    Args:
        devices: what the graphs may run on; the host when left out or empty.
        num_threads: how many threads a call on the host takes part in, the caller included. When left out,
            `EINKORN_NUM_THREADS` says it, or as many as the process may run at a time.
        custom_extensions: folders of kernel files, single files, packages, or kernels themselves. Where a graph calls
            a custom op that one of them has, too, with the same signature, it runs theirs: such as ready-made code from
            a package.
        interpret: whether kernels are interpreted instead of compiled: slowly, with the same results to the bit, with
            every access to memory checked, and with `breakpoint()` in them. `EINKORN_INTERPRET` says when left out.
        checks: what kernels check as they run: "off" (nothing, not even `assert`), "safe" (asserts, and what costs
            nothing noticeable), "all" (every access and every integer division; for data races on a simulated GPU see
            `Accelerator`); behind it "+nan" or "+inf", to stop at
            the first NaN (or infinity) that an op stores. When left out, EINKORN_CHECKS says it, or it is "safe".

    Raises:
        DeviceError: a device is not a device of this machine.
        PackageError: a custom extension cannot be loaded.
        EinkornError (EK0710): checks= is none of these.
    """

    debug = DEBUG  # settings for all sessions: `InferenceSession.debug.nan_check = True`

    def __init__(
        self,
        devices: Sequence[Device] | None = None,
        num_threads: int | None = None,
        *,
        custom_extensions: Extensions | None = None,
        interpret: bool | None = None,
        checks: str | None = None,
    ) -> None:
        self.checks = None if checks is None else parse_checks(checks)
        self.devices = ([] if devices is None else list_of("devices", devices, "devices", "EK0811")) or [CPU()]
        self.num_threads = None if num_threads is None else int_of("num_threads", num_threads)
        if self.num_threads is not None and not 1 <= self.num_threads <= MOST_THREADS:
            wrong("num_threads", num_threads, f"a number from 1 to {MOST_THREADS}")
        self._library = _library(custom_extensions)
        self._prints = PrintOptions()
        self.interpret = knobs.interpret if interpret is None else flag_of("interpret", interpret)
        self._models: weakref.WeakSet[Model] = weakref.WeakSet()
        self._profile: Profile | None = AMBIENT[-1] if AMBIENT else None
        for device in self.devices:
            if not isinstance(device, Device):
                hint = f"{device!r}.to_device() gives it" if isinstance(device, DeviceRef) else "CPU() is the host"
                wrong("devices", device, "a list of devices", code="EK0811", kind=DeviceError, hint=hint)

    def set_log_level(self, level: str) -> None:
        """How much Einkorn logs in this process: notset, trace, debug, info, warning, error or critical.

        Raises:
            GraphError: it is none of these.
        """
        show_log(choice_of("level", getattr(level, "value", level), LEVELS, CODE))

    def set_assert_level(self, level: str) -> None:
        """Which checks the graphs that are loaded from now on make as they run: "none" of them, not even asserts;
        "safe" or "warn", as `checks="safe"` says; or "all".

        Raises:
            GraphError: it is none of these.
        """
        known = [name for name in ASSERT_LEVELS if name]
        chosen = choice_of("level", getattr(level, "value", level), known, CODE)
        self.checks = parse_checks(ASSERT_LEVELS[chosen])

    def set_print_options(
        self, style: str = "compact", precision: int | None = None, directory: str | PathLike[str] | None = None
    ) -> None:
        """How `ops.print` shows the tensors of the graphs that are loaded from now on.

        Args:
            style: "compact" (of more than 1000 elements the ends of each axis), "full" (all elements), "binary" (all
                elements, into NumPy files) or "none".
            precision: digits behind the point of floats; as many as they have when left out.
            directory: where files go, one for each tensor that is printed: `LABEL-0.txt`, `LABEL-1.txt`, … with the
                text, or `LABEL-0.npy` for the style "binary". When left out, tensors go to standard output.

        Raises:
            GraphError: EK0478 an invalid style or precision, or "binary" without a directory.
        """
        chosen = choice_of("style", getattr(style, "value", style), STYLES, CODE)
        digits = None if precision is None else int_of("precision", precision)
        if digits is not None and not 0 <= digits <= MOST_DIGITS:
            wrong("precision", precision, f"a number from 0 to {MOST_DIGITS}")
        if directory is not None and not isinstance(directory, str | PathLike):
            wrong("directory", directory, "a path")
        if chosen == "binary" and directory is None:
            wrong("directory", directory, 'a path, for style "binary" writes files')
        self._prints = PrintOptions(chosen, digits, None if directory is None else Path(directory))

    set_debug_print_options = set_print_options  # as MAX calls them
    set_mojo_log_level = set_log_level
    set_mojo_assert_level = set_assert_level

    @contextmanager
    def profile(self, path: str | PathLike[str] | None = None) -> Iterator[Profile]:
        """Measures the calls of this session's models within a `with` block: calls, groups of fused kernels, threads.

        Args:
            path: where to write the trace in Chrome's trace event format, for chrome://tracing or Perfetto.

        Yields:
            The profile; `rows()`, `trace()` and `save(path)` say what was measured. Profiled calls of one model wait
            for each other.
        """
        profile = Profile()
        self._start_profile(profile)
        OPEN.append(profile)
        try:
            yield profile
        finally:
            OPEN.remove(profile)
            self._start_profile(None)
            if path is not None:
                profile.save(path)

    def _start_profile(self, profile: Profile | None) -> None:
        self._profile = profile
        for model in list(self._models):
            model.profile(profile)

    @without_internals
    def load(
        self,
        graph: Graph | str | PathLike[str],
        *,
        name: str | None = None,
        custom_extensions: Extensions | None = None,
        weights_registry: Mapping[str, object] | None = None,
        checks: str | None = None,
    ) -> Model:
        """The graph, compiled or found ready, as a model.

        Args:
            graph: a finished graph; or the path of a package that `Model.export` has written, which needs no compiler
                where it has code for this machine.
            name: of a graph in a package that holds several.
            custom_extensions: as for the session, before whose libraries these come.
            weights_registry: the memory of each weight of the graph by its name: NumPy arrays, `Buffer`s, or anything
                that speaks DLPack. It is read where it lies, also in a mapped file, and has to keep its elements as
                long as the model is used.
            checks: as for the session, for this graph alone.

        Raises:
            GraphError, DTypeError: weights are missing, or do not fit the graph; all that is wrong in one error.
            PackageError: a custom extension cannot be loaded; EK0439 it has a custom op of the graph with another
                signature.
            CompileError: a mistake in a kernel.
            DeviceError: the graph uses a device that the session does not have.
            GraphError: the graph has no output yet.
        """
        if isinstance(graph, str | PathLike):
            return self._kept(self._from_package(graph, name, checks))
        with placed_on(self.devices):
            return self._model(self._compiled("load", graph, custom_extensions, checks), weights_registry)

    @without_internals
    def compile(
        self, graph: Graph, *, custom_extensions: Extensions | None = None, checks: str | None = None
    ) -> CompiledModel:
        """The code of a graph, before its weights are there: `init` makes models of it, each with weights of its own.

        Args:
            graph, custom_extensions, checks: as of `load`.

        Raises:
            as `load`, but for what concerns weights.
        """
        with placed_on(self.devices):
            compiled = self._compiled("compile", graph, custom_extensions, checks)
            compiled.prepare()
        return compiled

    @without_internals
    def init(self, compiled: CompiledModel, *, weights_registry: Mapping[str, object] | None = None) -> Model:
        """A model of compiled code with weights, as of `load`. Nothing is compiled.

        Raises:
            GraphError: EK0409 it is not what `compile` gives; EK0433 weights are missing, or do not fit.
        """
        if not isinstance(compiled, CompiledModel):
            text = f"init takes the result of compile, not {shown_value(compiled)}"
            raise NoGraphError(text, code="EK0409", place=user_place(), argument="compiled")
        with placed_on(compiled.options.devices):
            return self._model(compiled, weights_registry)

    @without_internals
    def init_all(
        self, compiled: Iterable[CompiledModel], *, weights_registry: Mapping[str, object] | None = None
    ) -> list[Model]:
        """A model of each, with weights from one registry."""
        listed = list_of("compiled", compiled, "the result of compile", "EK0409")
        return [self.init(each, weights_registry=weights_registry) for each in listed]

    @compiling
    def _model(self, compiled: CompiledModel, weights_registry: Mapping[str, object] | None) -> Model:
        return self._kept(compiled.model(weights_registry))

    @compiling
    @placed
    def _from_package(self, path: str | PathLike[str], name: str | None, checks: str | None) -> Model:
        with shielded():
            from .packaged_model import load_graph_package  # most graphs are staged

        wanted = self.debug.checks(self.checks if checks is None else parse_checks(checks))
        options = LoadOptions(tuple(self.devices), self.num_threads, wanted, self.interpret, self._prints)
        return load_graph_package(path, options, name=name)

    def _kept(self, model: Model) -> Model:
        self._models.add(model)
        if self._profile is not None:
            model.profile(self._profile)
        return model

    @compiling
    def _compiled(
        self, caller: str, graph: Graph, custom_extensions: Extensions | None, checks: str | None
    ) -> CompiledModel:
        """A graph of devices that are here, with the libraries of this session."""
        if not isinstance(graph, Graph):
            text = f"{caller} takes a Graph, not {shown_value(graph)}"
            raise NoGraphError(text, code="EK0409", place=user_place(), argument="graph")
        ir = with_extensions(graph.ir, [self._library, _library(custom_extensions)])
        here = {DeviceRef.from_device(device) for device in self.devices}
        for used in ir.types:
            if used.device not in here:
                names = ", ".join(sorted(map(str, here)))
                raise DeviceError(
                    f"graph '{ir.name}' uses {used.device}, and the session has {names}",
                    code="EK0806",
                    place=user_place(),
                    expected=str(used.device),
                    got=names,
                )
        self.debug.keep(graph)
        wanted = self.debug.checks(self.checks if checks is None else parse_checks(checks))
        prints, waits = self.debug.prints(self._prints), self.debug.device_sync_mode
        if wanted is not None and wanted.level == "all":
            self._warn_of_unchecked(ir)
        options = LoadOptions(tuple(self.devices), self.num_threads, wanted, self.interpret, prints, waits)
        return CompiledModel(options, ir)

    def _warn_of_unchecked(self, ir: GraphIR) -> None:
        """Warns, at the user's line, of devices of a graph for which a session's checks are not all there are."""
        used = {type.device for type in ir.types}
        for device in self.devices:
            if device.driver.unchecked and DeviceRef.from_device(device) in used:
                place = user_place()
                file, line = (place.file, place.line) if place is not None else ("<unknown>", 0)
                text = f'graph {ir.name!r} is loaded with checks="all": {device.driver.unchecked}'
                warnings.warn_explicit(text, UserWarning, file, line)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_models", "_profile")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._models, self._profile = weakref.WeakSet(), None
