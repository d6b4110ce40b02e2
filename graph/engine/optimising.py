"""Optimises a graph before its code is found or made: provides the passes with facts from the compiler.

Graphs of one op without weights and constants stay as they are, and so do those whose every op is looked at: where
kernels are interpreted, and where a NaN is found in the op that makes it.

See also `passes.pipeline` (the passes).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ...dsl.contract.checks import SAFE, Checks
from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.cache import content_key, shared_cache
from ..ir import ConstantTensor, GraphIR, Held, Node
from ..loading.cache_keys import graph_key
from ..loading.code import LoadedCode
from ..loading.compile import chosen_checks, facts_on_device, targets_of
from ..passes.fusion import Facts
from ..passes.pipeline import Optimised, PassTools, optimise
from ..staging.kernels import shipped_kernel
from .model import Model

MAX_KEPT_BYTES: Final = 1 << 20  # of computed constants that are kept in the cache


def optimise_graph(
    ir: GraphIR,
    load: Callable[[GraphIR], LoadedCode],
    checks: Checks | None,
    interpret: bool,
    prepares: bool = True,
    vector_bits: int | None = None,
) -> Optimised:
    """The graph to load in place of this one, with what each pass did.

    `load` finds the code of a graph. Unless it `prepares`, nothing is computed of weights when a model is loaded.
    `vector_bits` is the width of the vectors for which weights are packed; that of the graph's device when left out.
    """
    finds = chosen_checks(checks) or SAFE
    nodes = [item for item in ir.nodes if isinstance(item, Node)]
    single = len(nodes) < 2 and not any(isinstance(item, Held) for item in ir.nodes)
    if interpret or finds.finds or single:
        return Optimised(ir)
    width = _vector_bits if vector_bits is None else lambda _: vector_bits
    return optimise(ir, PassTools(lambda part: _computed(part, load), _facts_of, width, shipped_kernel, prepares))


def _facts_of(ir: GraphIR, node: Node) -> Facts:
    return facts_on_device(ir)(node)


def _vector_bits(ir: GraphIR) -> int:
    device = ir.device.to_device()
    return targets_of(device)[-1].vector_bits if device.is_host else 0


def _computed(part: GraphIR, load: Callable[[GraphIR], LoadedCode]) -> Sequence[np.ndarray[Any, Any]] | None:
    """The outputs of a graph without inputs, from the cache or by a call; None where the call fails."""
    if len(part.devices) > 1:
        return None
    key = _key(part)
    known = shared_cache().get(key, ".npz")
    if known is not None:
        with np.load(io.BytesIO(known), allow_pickle=False) as file:
            return [
                file[f"arr_{k}"].view(type.dtype.to_numpy()).reshape([int(dim) for dim in type.shape])
                for k, type in enumerate(part.output_types)
            ]
    try:
        buffers = Model(part, load, None, {}).execute()
        arrays = [np.ascontiguousarray(buffer.to_numpy()) for buffer in buffers]
    except EinkornError:
        return None
    if sum(array.nbytes for array in arrays) <= MAX_KEPT_BYTES:
        with shielded():
            file_bytes = io.BytesIO()
            np.savez(file_bytes, *(array.reshape(-1).view(np.uint8) for array in arrays))
            shared_cache().put(key, file_bytes.getvalue(), ".npz")
    return arrays


def _key(part: GraphIR) -> str:
    """Names the values in the cache: all that they are computed from."""
    targets = [target.key for target in targets_of(part.device.to_device())]
    digest = hashlib.sha256()
    for item in part.nodes:
        if isinstance(item, ConstantTensor):
            digest.update(item.array.tobytes())
    return content_key("constants", graph_key(part, targets, True, SAFE), digest.hexdigest())
