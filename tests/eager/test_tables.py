"""Functions and methods come from the rows of ops: each has one, which gives with tensors what it gives in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor
from support import eager_stubs, graphs, op_cases

from einkorn import functional as F
from einkorn import random, tensor
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import ops
from einkorn.graph.eager import patterns
from einkorn.graph.eager.nodes import FUNCTIONS
from einkorn.graph.ops.stage import METHODS, OPS
from einkorn.graph.staging.value import TensorValue

FUNCTIONAL = """
    abs add arange argmax argmin argsort as_interleaved_complex atanh avg_pool2d band_part broadcast_to buffer_store
    buffer_store_slice cast chunk complex_mul concat constant constant_external cos cumsum custom div equal erf exp
    flatten floor fold functional gather gather_nd gelu greater greater_equal hann_window in_graph_context
    inplace_custom irfft is_inf is_nan layer_norm lazy log log1p logical_and logical_not logical_or logical_xor
    logsoftmax masked_scatter matmul max max_pool2d mean min mod mul negate nonzero not_equal outer pad permute pow
    relu repeat_interleave reshape round rsqrt scatter scatter_nd sigmoid silu sin slice_tensor softmax split sqrt
    squeeze stack sub sum tanh tile top_k transfer_to transpose trunc unsqueeze where CustomExtensionType
"""
TENSOR = """
    T arange argmax broadcast_to cast clip constant device driver_tensor dtype from_dlpack from_graph_value full
    full_like item max mean min num_elements ones ones_like permute range_like rank real realize reshape shape split
    squeeze state storage sum to transpose type unsqueeze zeros zeros_like
"""
MODULE = """
    RealizationContext RealizationState Tensor current_realization_context default_device default_dtype defaults
    defaults_like realization_context
"""


def test_documented_names() -> None:
    for owner, names in (
        (F, FUNCTIONAL),
        (Tensor, TENSOR),
        (tensor, MODULE),
        (random, "gaussian normal seed set_seed uniform"),
    ):
        assert [name for name in names.split() if not hasattr(owner, name)] == []
    assert [name for name in (*F.__all__, *tensor.__all__, *random.__all__) if not name] == []


def test_every_op_is_a_function_and_every_method_a_method() -> None:
    missing = [
        name
        for name, row in OPS.items()
        if name not in FUNCTIONS and not (row.graphs_only or name.startswith("random."))
    ]
    assert missing == []
    methods = [name for owner, name in METHODS if owner is TensorValue and name != "print"]
    assert [name for name in methods if not hasattr(Tensor, name)] == []
    with pytest.raises(EinkornError, match="EK0401"):
        F.constant_external("weight", Tensor.ones([2]).type)


@pytest.mark.parametrize("file", eager_stubs.STUBS)
def test_the_stubs_are_those_of_the_ops(file: str) -> None:
    """`python tests/support/eager_stubs.py` writes them."""
    assert (eager_stubs.FOLDER / file).read_text() == eager_stubs.written(eager_stubs.STUBS[file]())


# Cases that say themselves what only a graph has: names of dims, weights, kernels of its own, values of its buffers.
OF_GRAPHS = {
    "arange",
    "full",
    "ones",
    "range",
    "shape_to_tensor",
    "zeros",
    "constant_external",
    "custom",
    "inplace_custom",
    "print",
    "cond",
    "while_loop",
    "call",
    "rebind",
    "constant",
}
FAMILIES = [name for name in op_cases.families() if name not in ("random", "buffers")]


def cases_of(family: str, run: int) -> list[tuple[op_cases.Case, list[Any], list[Any]]]:
    """The cases of a family with their arrays, and with what NumPy makes of them."""
    collected = []
    for case in op_cases.families()[family]:
        if (
            case.op in OF_GRAPHS
            or OPS[case.op].graphs_only
            or case.alone
            or case.extensions
            or case.weights
            or not case.tensors
        ):
            continue
        arrays = case.arrays(np.dtype(case.dtypes[0]), 0 if case.op == "band_part" else run)
        with np.errstate(all="ignore"):
            wanted = op_cases.listed(case.reference(*[each.copy() for each in arrays]))
        collected.append((case, arrays, [np.asarray(each) for each in wanted]))
    return collected


@pytest.mark.parametrize("family", FAMILIES)
def test_types_are_known_when_an_op_is_recorded(family: str) -> None:
    """The cases of irregular ops, of all sizes: shape and dtype are those of the reference, and nothing is compiled."""
    with F.lazy():
        for run in range(3):
            for case, arrays, wanted in cases_of(family, run):
                results = op_cases.listed(case.call(*map(Tensor.constant, arrays)))
                shapes = [(tuple(map(int, each.shape)), each.dtype.to_numpy()) for each in results]
                assert shapes == [(each.shape, each.dtype) for each in wanted], f"{case.op}, run {run}"


@pytest.mark.parametrize("family", ["gathering", "indexing", "mathematics", "movement", "rearranging", "scattering"])
def test_cases_agree_with_numpy(family: str) -> None:
    """The cases of irregular ops, of two sizes, as one graph for each."""

    @F.functional
    def all_of(cases: list[op_cases.Case], inputs: list[list[Tensor]]) -> list[Any]:
        return [op_cases.listed(case.call(*given)) for case, given in zip(cases, inputs, strict=True)]

    failures = []
    for run in range(2):
        cases = cases_of(family, run)
        actual = all_of(
            [case for case, *_ in cases], [[Tensor.constant(each) for each in given] for _, given, _ in cases]
        )
        for (case, _, wanted), results in zip(cases, actual, strict=True):
            for result, expected in zip(results, wanted, strict=True):
                trouble = graphs.difference(result.numpy(), expected, case.ulps)
                failures += [f"{case.op}, run {run}: {trouble}"] if trouble else []
    assert not failures, "\n".join(failures)


def test_ops_of_graphs_take_tensors_where_no_graph_is_built() -> None:
    x = Tensor.constant([[1.0, -2.0], [3.0, 4.0]])
    assert ops.relu(x).tolist() == [[1, 0], [3, 4]] and ops.max(x, axis=None).item() == 4
    for call in (lambda: ops.relu(1.0), lambda: ops.zeros([2])):
        with pytest.raises(EinkornError, match="EK0401"):
            call()


def test_ops_that_know_sizes_keep_the_others_open() -> None:
    """Channels, taps, heads have to be known; a batch need not."""
    before = len({id(each) for each in patterns._patterns.values()})
    for n in (2, 5, 7):
        image = Tensor.ones([n, 8, 8, 4])
        assert F.conv2d(image, Tensor.ones([3, 3, 2, 6]), groups=2).numpy().shape == (n, 6, 6, 6)
        heads = Tensor.ones([n, 2 * n, 4, 8])
        assert F.attention(heads, heads[:, :, :2], heads[:, :, :2]).numpy().shape == (n, 2 * n, 4, 8)
    assert len({id(each) for each in patterns._patterns.values()}) - before < 12
