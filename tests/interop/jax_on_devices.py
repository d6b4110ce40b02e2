"""A program of JAX on four devices of the host, for `test_jax_devices`: prints what has to hold, a line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import einkorn.jax
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register, store
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.stdlib import Sum, rowwise

from . import batch_kernels, derivative_kernels, direct_kernels, elementwise_kernels
from .jax_ops import NATIVE, OPS

P = PartitionSpec
X = jnp.linspace(-2, 2, 8)
Ops = dict[str, Callable[..., Any]]


def say(what: str, holds: Any) -> None:
    print("holds" if bool(holds) else "FAILS", what, flush=True)


def mesh_of(count: int, kind: AxisType = AxisType.Auto) -> Any:
    return jax.make_mesh((count,), ("d",), axis_types=(kind,), devices=jax.devices()[:count])


def alike(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in pairs)


def losses(mesh: Any, ops: Ops) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions of sharded and of replicated arrays, and arguments for them."""
    size = 8 // mesh.size

    def mapped(body: Callable[..., Any], *specs: Any, check_vma: bool = True) -> Callable[..., Any]:
        def total(*args: Any) -> Any:
            return jax.lax.psum((body(*args) ** 2).sum(), "d")

        return jax.shard_map(total, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=check_vma)

    weights = jnp.arange(1.0, 1.0 + size)
    return {
        "swish of shards": (mapped(lambda x: ops["swish"](x), P("d")), (X,)),
        "swish without check_vma": (mapped(lambda x: ops["swish"](x), P("d"), check_vma=False), (X,)),
        "replicated weights": (mapped(lambda x, w: ops["product"](x, w), P("d"), P()), (X, weights)),
        "replicated numbers": (mapped(lambda a, x, w: ops["quadratic"](a, x, w), P(), P("d"), P()), (3.0, X, weights)),
        "constants": (mapped(lambda x: ops["product"](x, np.ones(size, np.float32)), P("d")), (X,)),
        "what does not vary": (mapped(lambda w: ops["swish"](w), P()), (weights,)),
        "a kernel as backward": (mapped(lambda x: ops["cube"](x), P("d")), (X,)),
        "not elementwise": (mapped(lambda x: ops["rotated"](x), P("d")), (X,)),
        "vmap": (mapped(lambda x: jax.vmap(ops["rotated"])(x[:, None] * x), P("d")), (X,)),
    }


def derivatives() -> None:
    for count in (1, 2, 4):
        ours, theirs = losses(mesh_of(count), OPS), losses(mesh_of(count), NATIVE)
        for name in ours if count == 4 else ("swish of shards", "replicated weights"):
            (function, args), (native, _) = ours[name], theirs[name]
            every = tuple(range(len(args)))
            actual, wanted = (jax.jit(jax.grad(f, every))(*args) for f in (function, native))
            say(f"{count} devices, {name}: gradients", alike(actual, wanted))
            if name == "replicated weights" and count == 2:
                actual, wanted = (jax.jit(jax.hessian(f, every))(*args) for f in (function, native))
                say(f"{count} devices, {name}: second derivatives", alike(actual, wanted))


def ones_backward() -> None:
    """Gradients that do not vary, for inputs that do."""
    op = einkorn.jax.op(direct_kernels.add_one)
    op.backward(lambda context, gradient: jnp.ones(context.inputs[0].shape))
    function = jax.shard_map(op, mesh=mesh_of(4), in_specs=P("d"), out_specs=P("d"))
    say("a constant gradient", alike(jax.grad(lambda x: function(x).sum())(X), jnp.ones(8)))


def results_vary() -> None:
    for op in (OPS["swish"], OPS["rotated"], einkorn.jax.op(elementwise_kernels.parts)):
        try:
            jax.shard_map(op, mesh=mesh_of(4), in_specs=P("d"), out_specs=P())(X)
            say("out_specs=P() of a result that varies is refused", False)
        except ValueError as error:
            say("out_specs=P() of a result that varies is refused", "replication" in str(error))


@register("devices::row_totals", batch="b")
def row_totals(
    out: OutputTensor[float32, "*b n"],
    total: OutputTensor[float32, "*b"],
    x: InputTensor[float32, "*b n"],
    weight: InputTensor[float32, "n k"],
) -> None:
    """A batch with weights of more axes than the batch has."""
    foreach(out, lambda i: x[i] * weight[i[-1], 0])
    rowwise(x, Sum, lambda row, value: store(total, row, value))


def shardings() -> None:
    mesh = mesh_of(4)
    rows = jax.device_put(jnp.arange(32.0).reshape(8, 4) / 8, NamedSharding(mesh, P("d")))
    columns = jax.device_put(rows, NamedSharding(mesh, P(None, "d")))
    row = jax.device_put(jnp.arange(4.0), NamedSharding(mesh, P()))
    matrix = jax.device_put(jnp.ones((4, 3)), NamedSharding(mesh, P()))
    number = einkorn.jax.op(elementwise_kernels.with_number)
    halves, outer = einkorn.jax.op(direct_kernels.halves), einkorn.jax.op(direct_kernels.outer)
    swish, product, rotated = OPS["swish"], OPS["product"], OPS["rotated"]
    totals = einkorn.jax.op(row_totals)
    cases: list[tuple[str, Callable[..., Any], Callable[..., Any], tuple[Any, ...], Any]] = [
        ("rows", swish, NATIVE["swish"], (rows,), P("d")),
        ("columns", swish, NATIVE["swish"], (columns,), P(None, "d")),
        ("a sum", lambda x: swish(x * 2) + 1, lambda x: NATIVE["swish"](x * 2) + 1, (rows,), P("d")),
        ("two operands", product, jnp.multiply, (rows, rows), P("d")),
        ("a number", lambda x: number(x, 3.0), lambda x: x * 3, (rows,), P("d")),
        ("numbers of a batch", jax.vmap(number), lambda x, a: x * a[:, None], (rows, rows[:, 0]), P("d")),
        ("a batch", jax.vmap(rotated), lambda x: jnp.roll(x, -1, axis=1), (rows,), P("d")),
        (
            "a batch of batches",
            jax.vmap(jax.vmap(rotated)),
            lambda x: jnp.roll(x, -1, axis=2),
            (rows[:, None],),
            P("d"),
        ),
        ("a batch and one", jax.vmap(outer, (0, None)), lambda x, y: x[:, :, None] * y, (rows, row), P("d")),
        ("two outputs of a batch", jax.vmap(halves), lambda x: (x[:, :2], x[:, 2:]), (rows,), P("d")),
        ("a promised batch", totals, lambda x, w: (x * w[:, 0], x.sum(1)), (rows, matrix), P("d")),
        ("a promised batch of two axes", totals, lambda x, w: (x * w[:, 0], x.sum(2)), (rows[:, None], matrix), P("d")),
        ("one of two axes", lambda x, m: swish(x @ m), lambda x, m: NATIVE["swish"](x @ m), (rows, matrix), P("d")),
    ]
    for name, function, native, args, spec in cases:
        program = jax.jit(function).lower(*args).compile()
        results = program(*args)
        say(f"sharded {name}: values", alike(results, native(*args)))
        whole = [r for r in jax.tree.leaves(results) if r.sharding.is_equivalent_to(NamedSharding(mesh, spec), r.ndim)]
        say(f"sharded {name}: results are", len(whole) == len(jax.tree.leaves(results)))
        say(f"sharded {name}: nothing is gathered", "all-gather" not in program.as_text())
    gradient = jax.jit(jax.grad(lambda x: (swish(x) ** 2).sum()))
    say("sharded gradients: nothing is gathered", "all-gather" not in gradient.lower(rows).compile().as_text())
    say("sharded, of operands that are sharded otherwise", alike(jax.jit(product)(rows, columns), rows * rows))
    actual, sums = jax.jit(totals)(columns, matrix)
    say("a promised batch, split along other axes", alike((actual, sums), (columns, columns.sum(1))))
    along = jax.jit(rotated)(jax.device_put(X, NamedSharding(mesh, P("d"))))
    say("what cannot be split is gathered", alike(along, jnp.roll(X, -1)))
    follow = einkorn.jax.op(direct_kernels.follow)
    say("changed in place", alike(jax.jit(jax.vmap(follow, (0, 0, None)))(rows, rows + 1, 0.5), rows + 0.5))


def batches(count: int) -> None:
    """Kernels whose members are independent are split along the axes of the batch; of others operands are gathered."""
    mesh = mesh_of(count)
    for name, (kernel, sizes, oracle) in batch_kernels.INDEPENDENT.items():
        for batch, spec in (((8,), P("d")), ((3, 8), P(None, "d"))):
            arrays = batch_kernels.arguments(sizes, *batch)
            specs = [spec if a.shape[: len(batch)] == batch else P() for a in arrays]
            args = [jax.device_put(a, NamedSharding(mesh, each)) for a, each in zip(arrays, specs, strict=True)]
            program = jax.jit(einkorn.jax.op(kernel)).lower(*args).compile()
            results = jax.tree.leaves(program(*args))
            say(f"{count} devices, batch {batch} of {name}: values", alike(results, jax.tree.leaves(oracle(*arrays))))
            placed = [r.sharding.is_equivalent_to(NamedSharding(mesh, spec), r.ndim) for r in results]
            say(f"{count} devices, batch {batch} of {name}: results are", all(placed))
            say(f"{count} devices, batch {batch} of {name}: nothing is sent", not sends(program.as_text()))
    rows = batch_kernels.arguments("4", 8)[0]
    shards = jax.device_put(rows, NamedSharding(mesh, P("d")))
    for kernel in batch_kernels.DEPENDENT:
        name = kernel.schema.name
        say(f"{count} devices, {name}: gathered", alike(jax.jit(einkorn.jax.op(kernel))(shards), kernel(rows)))


def sends(program: str) -> bool:
    return any(name in program for name in ("all-gather", "all-reduce", "all-to-all", "collective-permute"))


def explicit() -> None:
    mesh = mesh_of(4, AxisType.Explicit)
    with jax.set_mesh(mesh):
        rows = jax.device_put(jnp.arange(32.0).reshape(8, 4) / 8, NamedSharding(mesh, P("d")))
        other = jax.device_put(rows, NamedSharding(mesh, P(None, "d")))
        result = jax.jit(OPS["swish"])(rows)
        say("explicit axes: values", alike(result, NATIVE["swish"](np.asarray(rows))))
        say("explicit axes: types", jax.typeof(result).sharding.spec == P("d", None))
        gradient = jax.jit(jax.grad(lambda x: (OPS["swish"](x) ** 2).sum()))(rows)
        native = jax.grad(lambda x: (NATIVE["swish"](x) ** 2).sum())(np.asarray(rows))
        say("explicit axes: gradients", alike(gradient, native))
        try:
            jax.jit(OPS["product"])(rows, other)
            say("explicit axes: shardings that contradict each other", False)
        except EinkornError as error:
            say("explicit axes: shardings that contradict each other", error.code == "EK0889")


def main() -> None:
    assert len(jax.devices()) == 4 and derivative_kernels
    derivatives()
    ones_backward()
    results_vary()
    shardings()
    batches(2)
    batches(4)
    explicit()


if __name__ == "__main__":
    main()
