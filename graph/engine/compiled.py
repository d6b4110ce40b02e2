"""Holds the code of a graph before its weights are there.

See also `loading.load` (how code is found and made).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...dsl.contract.checks import Checks
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import KernelError
from ...dsl.environment.compiling import compiling
from ...dsl.environment.knobs import knobs
from ..calling.outputs import Filling
from ..driver.device import Storage
from ..driver.devices import Device, placed_on
from ..findings.prints import PrintOptions, with_style
from ..ir import External, GraphIR
from ..loading.code import LoadedCode
from ..loading.compile import chosen_checks, interpret_graph
from ..loading.load import load_graph, load_parts
from ..passes.devices import Segment, divide
from .model import Model
from .optimising import optimise_graph
from .prepared import graphs_of, prepared_weights
from .weights import WeakRegistry, registry_of, weights_of

Load = Callable[..., LoadedCode]


@dataclass(frozen=True)
class LoadOptions:
    """What a session says of the models that it loads."""

    devices: tuple[Device, ...]
    num_threads: int | None
    checks: Checks | None
    interpret: bool
    prints: PrintOptions
    waits: bool = False


class CompiledModel:
    """A graph whose code is ready: `InferenceSession.init` makes models of it. It cannot be called."""

    def __init__(
        self, options: LoadOptions, ir: GraphIR, prepares: bool = True, vector_bits: int | None = None
    ) -> None:
        self.options = options
        self.ir = ir
        styled = ir if options.prints == PrintOptions() else with_style(ir, options.prints)
        self._load = self._loader()
        optimised = optimise_graph(styled, self._load, options.checks, options.interpret, prepares, vector_bits)
        self._final, self.passes = optimised.ir, optimised.passes
        self._ready: list[tuple[GraphIR, LoadedCode]] = []  # by the identity of the graph

    @property
    def input_types(self) -> tuple[Any, ...]:
        """The types of the inputs."""
        return tuple(self.ir.inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _compiled_again, (self.options, self.ir)

    def __repr__(self) -> str:
        return f"CompiledModel({self.ir.name!r})"

    def prepare(self) -> None:
        """Compiles the graph, or finds its code."""
        if len(self.ir.devices) > 1:  # each part is found in the cache when a model is made
            for step in divide(self._final):
                if isinstance(step, Segment):
                    self._load(step.ir)
        else:
            self._ready.append((self._final, self._load(self._final)))
            for graph, _ in graphs_of(self._final):
                self._load(graph)

    def model(self, registry: Mapping[str, object] | None) -> Model:
        """A model with these weights."""
        try:
            weights = self._weights(registry)
        except KernelError:  # a value that is computed of weights: each call reports it, if it comes that far
            return CompiledModel(self.options, self.ir, prepares=False).model(registry)
        hosts = self._hosts()
        filled = self._finds_unwritten() and any(hosts)
        model = Model(
            self._final, self._given, Filling() if filled else None, weights, threads=self.options.num_threads
        )
        model.rewriting, model.wanted_checks = self.passes, self.options.checks
        model.with_weights_for = functools.partial(self._with_weights_for, WeakRegistry(registry or {}))
        model.reduced = self._reduced
        if knobs.verify_fusion and not (filled or self.options.interpret) and hosts == [True]:
            model.verify_fusion(functools.partial(load_parts, checks=self.options.checks))
        return model

    def _reduced(self, weights: Mapping[int, Storage]) -> tuple[object, ...]:
        """What pickle keeps of a model with these weights."""
        return _loaded_again, (self.options, self.ir, registry_of(self._final, weights))

    def _with_weights_for(
        self, registry: WeakRegistry, vector_bits: int | None, *, given: bool
    ) -> tuple[GraphIR, Mapping[int, Storage]]:
        """The graph after all passes for processors with vectors of a width, and its weights; None is any width.

        With `given`, the weights are those of the graph's author, and their memory is not looked for.
        """
        made = CompiledModel(self.options, self.ir, vector_bits is not None and not given, vector_bits)
        return made._final, {} if given else made._weights(registry.values())

    def _weights(self, registry: Mapping[str, object] | None) -> dict[int, Storage]:
        given = weights_of(self.ir, registry)
        names = {number: item.name for number, item in enumerate(self.ir.nodes) if isinstance(item, External)}
        return prepared_weights(self._final, {names[n]: storage for n, storage in given.items()}, self._load)

    def _given(self, ir: GraphIR) -> LoadedCode:
        """Code that is there, or is loaded now: a model loads variants in the middle of a call."""
        return next((code for known, code in self._ready if known is ir), None) or self._load(ir)

    def _hosts(self) -> list[bool]:
        return [device.to_device().is_host for device in self.ir.devices]

    def _finds_unwritten(self) -> bool:
        level = chosen_checks(self.options.checks)
        return level is not None and level.level == "all"

    def _loader(self) -> Load:
        options = self.options
        load: Load = functools.partial(interpret_graph if options.interpret else load_graph, checks=options.checks)
        load = _placed(load, options.devices)
        if options.prints != PrintOptions():
            load = _with(load, prints=options.prints)
        return (
            _with(load, waits=True) if options.waits or (self._finds_unwritten() and not all(self._hosts())) else load
        )


def _with(load: Load, **changed: Any) -> Load:
    return lambda ir: replace(load(ir), **changed)


def _placed(load: Load, devices: Sequence[Device]) -> Load:
    """The same at any time: a model loads variants in the middle of a call."""
    if all(device.is_host for device in devices):
        return load

    def placed(ir: GraphIR) -> LoadedCode:
        with placed_on(devices):
            return load(ir)

    return placed


@compiling
def _loaded_again(options: LoadOptions, ir: GraphIR, registry: Mapping[str, object]) -> Model:
    """A model that was pickled or copied, in this process."""
    with placed_on(options.devices):
        return CompiledModel(options, ir).model(registry)


@compiling
def _compiled_again(options: LoadOptions, ir: GraphIR) -> CompiledModel:
    """What was compiled, pickled or copied, in this process."""
    with placed_on(options.devices):
        made = CompiledModel(options, ir)
        made.prepare()
        return made
