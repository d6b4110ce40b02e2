"""Smaller networks that still fail.

One call instead of several, fewer outputs, a value replaced by an operand of its type or by a new input, a step that
changes a buffer left out, numbers for named dims: each is tried, the larger cuts first, until none of them fails.

See also `check_network` (how a network is run).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from choosing_smaller import smallest

from einkorn.graph import BufferValue, DeviceRef, Graph
from einkorn.graph.types.dims import StaticDim, SymbolicDim

from .network import KERNELS, STEPS, Network, Parameters, input_type

HOST = DeviceRef.CPU()
Ref = tuple[int, int]  # a step and the number of its result; (-1, k) is input k
Input = tuple[str, tuple[int | str, ...], str]


@dataclass(frozen=True)
class Draft:
    """A network whose values are named by what makes them, so that steps can go."""

    inputs: dict[int, Input]
    steps: dict[int, tuple[str, tuple[Ref, ...], Parameters]]
    results: dict[int, int]  # how many results a step has
    outputs: tuple[Ref, ...]
    sizes: tuple[dict[str, int], ...]
    seed: int

    def network(self) -> Network:
        """The network, without steps and inputs that nothing needs; what changes buffers stays."""
        needed = {ref[0] for ref in self.outputs}
        for number, (_, operands, _) in sorted(self.steps.items(), reverse=True):
            if number in needed or not self.results[number] or self.steps[number][2].get("inplace"):
                needed.add(number)
                needed.update(ref[0] for ref in operands)
        used = {r for n, (_, refs, _) in self.steps.items() if n in needed for r in refs} | set(self.outputs)
        names: dict[Ref, int] = {}
        inputs = []
        for number, each in sorted(self.inputs.items()):
            if (-1, number) in used:
                names[-1, number] = len(names)
                inputs.append(each)
        steps = []
        for number, (name, operands, parameters) in sorted(self.steps.items()):
            if number in needed:
                steps.append((name, tuple(names[ref] for ref in operands), parameters))
                for k in range(self.results[number]):
                    names[number, k] = len(names)
        outputs = tuple(names[ref] for ref in self.outputs)
        return Network(tuple(inputs), tuple(steps), outputs, self.sizes, self.seed)

    def with_value(self, old: Ref, new: Ref) -> Draft:
        """The same with one value in the place of another."""
        steps = {
            number: (name, tuple(new if ref == old else ref for ref in operands), parameters)
            for number, (name, operands, parameters) in self.steps.items()
        }
        return replace(self, steps=steps, outputs=tuple(new if ref == old else ref for ref in self.outputs))


def drafted(network: Network) -> tuple[Draft, dict[Ref, Any]]:
    """A network as a draft, and the types of its values, as far as it can be staged."""
    with Graph("network", input_types=[input_type(*i) for i in network.inputs], custom_extensions=[KERNELS]) as graph:
        values = list(graph.inputs)
        refs: list[Ref] = [(-1, k) for k in range(len(values))]
        steps, results = {}, {}
        for number, (name, operands, parameters) in enumerate(network.steps):
            steps[number] = (name, tuple(refs[k] for k in operands), parameters)
            try:
                made = STEPS[name]([values[k] for k in operands], parameters)
            except Exception:  # this is what is found
                made = []
            results[number] = len(made)
            values += made
            refs += [(number, k) for k in range(len(made))]
        draft = Draft(
            dict(enumerate(network.inputs)),
            steps,
            results,
            tuple(refs[k] for k in network.outputs),
            network.sizes,
            network.seed,
        )
        return draft, dict(zip(refs, values, strict=True))


def smaller(network: Network) -> Iterator[Network]:
    """Networks with a little less in them."""
    draft, values = drafted(network)
    if len(network.sizes) > 1:
        yield from (replace(network, sizes=(sizes,)) for sizes in network.sizes)
    for number, output in enumerate(draft.outputs):
        if len(draft.outputs) > 1:
            yield replace(draft, outputs=(output,)).network()
            yield replace(draft, outputs=draft.outputs[:number] + draft.outputs[number + 1 :]).network()
    for ref in sorted(values, reverse=True):
        value = values[ref]
        if isinstance(value, BufferValue):
            continue
        shape = tuple(
            int(d) if isinstance(d, StaticDim) else d.name if isinstance(d, SymbolicDim) else None for d in value.shape
        )
        known = all(not isinstance(dim, str) or all(dim in sizes for sizes in network.sizes) for dim in shape)
        if ref[0] >= 0 and None not in shape and known:
            number = max(draft.inputs, default=-1) + 1
            inputs = draft.inputs | {number: (value.dtype.name, shape, "")}
            yield replace(draft.with_value(ref, (-1, number)), inputs=inputs).network()
        operands = draft.steps[ref[0]][1] if ref[0] >= 0 else [r for r in values if r[0] < 0 and r < ref]
        for other in operands:
            same = values[other]
            if not isinstance(same, BufferValue) and (same.dtype, list(same.shape)) == (value.dtype, list(value.shape)):
                yield draft.with_value(ref, other).network()
    for number, (_, _, parameters) in draft.steps.items():
        if not draft.results[number] or parameters.get("inplace"):
            refs = {(number, k) for k in range(draft.results[number])}
            if not refs & set(draft.outputs) and all(not refs & set(o) for _, o, _ in draft.steps.values()):
                yield replace(draft, steps={n: s for n, s in draft.steps.items() if n != number}).network()
    for number, (dtype, shape, kind) in draft.inputs.items():
        if kind == "turned":
            yield replace(draft, inputs=draft.inputs | {number: (dtype, shape, "")}).network()
    for name in network.sizes[0]:
        for size in {sizes[name] for sizes in network.sizes}:
            fixed = tuple((t, tuple(size if dim == name else dim for dim in s), k) for t, s, k in network.inputs)
            if fixed != network.inputs:
                yield replace(network, inputs=fixed, sizes=tuple(s | {name: size} for s in network.sizes))


def shrunk(network: Network, fails: Callable[[Network], bool], trials: int = 300) -> Network:
    """A network from which nothing more can be taken, or the best of a number of trials."""
    return smallest(network, smaller, fails, trials)
