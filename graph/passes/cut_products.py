"""Computes matrix products in pieces where ranks reduce their results, so that a piece is exchanged meanwhile.

    x = matmul(a, b); y = allreduce(x)        y, parts = allreduce_product(a, b)

One kernel computes some rows, begins their exchange, computes the next rows, and reduces those before. Bits do not
differ. Neither do the exchanges: a reduction goes block by block in any case, so ranks whose graphs differ elsewhere
may be cut in another way. Where the rows of a call are few, the kernel has one block, as the two before.

See also `stdlib/kernels/product_sums.py`.
"""

from __future__ import annotations

from typing import Final

from ...dsl.contract.collective_names import PREFIX
from ..driver.devices import DeviceRef
from ..ir import Control, GraphIR, Item, Node
from ..renumbering import Rewriting
from ..types.dims import StaticDim
from ..types.tensor_type import TensorType
from .fold_constants import elements_of
from .overlap import KernelOf

FAMILY: Final = "product_sums"
PRODUCTS: Final = ("matmul", "matmul_transposed", "matmul_packed", "matmul_transposed_packed")
ALLREDUCE: Final = f"{PREFIX}allreduce"
STARTED: Final = f"{PREFIX}start_allreduce"
MIN_STEPS: Final = 64  # of a sum; with fewer, a product takes less time than its exchange


def cut_products(ir: GraphIR, kernel_of: KernelOf) -> GraphIR:
    """The graph with products that are computed in pieces."""
    if not any(isinstance(item, Node) and item.name == ALLREDUCE for item in ir.nodes):
        return ir
    return _Cutting(ir, kernel_of).run()


def product_before(ir: GraphIR, item: Item) -> int | None:
    """The number of the product whose result a reduction takes, if it takes one."""
    if not isinstance(item, Node) or item.name not in (ALLREDUCE, STARTED) or not item.kernel.shipped:
        return None
    number = ir.makers.get(item.operands[0])
    maker = None if number is None else ir.nodes[number]
    return number if isinstance(maker, Node) and maker.name in PRODUCTS and maker.kernel.shipped else None


def why_whole(ir: GraphIR, reduction: Node) -> str:
    """Why the product that a reduction takes is computed before that begins; "" where it is cut."""
    number = ir.makers[reduction.operands[0]]
    product = ir.nodes[number]
    assert isinstance(product, Node)
    type, parameters = product.out_types[0], dict(reduction.parameters)
    if type.device != DeviceRef.CPU():
        return "kernels of GPUs wait for exchanges"
    if parameters["ranks"] == 1:
        return "there is one rank"
    if reduction.name == STARTED:
        return "its exchange goes on while other ops run"
    if _readers(ir, product.results[0]) > 1:
        return f"the result of '{product.name}' is read elsewhere, too"
    regions = ir.regions.of
    if regions[number] != regions[ir.makers[reduction.results[0]]]:
        return "they are in different control flow bodies"
    if ir.ordered(product):
        return f"'{product.name}' reads a buffer"
    elements, steps = elements_of(type), ir.types[product.operands[0]].shape[-1]
    if elements is not None:
        size, of_block = type.dtype.bytes_for(elements), 2 if parameters["ranks"] == 2 else 1
        if size * of_block <= parameters["block"]:
            return f"its {size} bytes are exchanged in one piece"
    if isinstance(steps, StaticDim) and int(steps) < MIN_STEPS:
        return f"a product of {int(steps)} steps takes less time than its exchange"
    return ""


def _readers(ir: GraphIR, value: int) -> int:
    """How often a value is read, or given back."""
    operands = (item.operands for item in ir.nodes if isinstance(item, Node | Control))
    given = (*ir.outputs, *ir.regions.given(), *(step.value for step in ir.steps))
    return given.count(value) + sum(each.count(value) for each in operands)


class _Cutting(Rewriting):
    pass_name = "cut_products"

    def __init__(self, ir: GraphIR, kernel_of: KernelOf) -> None:
        super().__init__(ir)
        self.kernel_of = kernel_of
        self.products: dict[int, int] = {}  # by number of a reduction, that of its product
        for number, item in enumerate(ir.nodes):
            product = product_before(ir, item)
            if product is not None and isinstance(item, Node) and not why_whole(ir, item):
                self.products[number] = product
        self.dropped = {*self.products.values()}

    def rewrite(self, number: int, item: Item) -> None:
        if number in self.dropped:
            self.changed += 1
        elif number in self.products:
            product = self.ir.nodes[self.products[number]]
            assert isinstance(product, Node) and isinstance(item, Node)
            self.replace(item, self._cut(product, item)[:1])
        else:
            self.keep(item)

    def _cut(self, product: Node, reduction: Node) -> tuple[int, ...]:
        kernel, type = self.kernel_of(FAMILY, f"{ALLREDUCE}_product"), reduction.out_types[0]
        given = {"lanes": 0, **dict(product.parameters), **dict(reduction.parameters), "product_of": product.name}
        parameters = tuple((each.name, given[each.name]) for each in kernel.schema.parameters)
        parts = TensorType(type.dtype, [2 * given["block"] // type.dtype.size_in_bytes], type.device)
        operands = self.new((*product.operands, reduction.operands[-1]))
        return self.add(Node(kernel, parameters, operands, (type, parts), (0, 0), reduction.place))
