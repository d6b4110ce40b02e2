"""Products of views by the instructions that a target has for matrices.

    core = TensorCore(float32, bfloat16, (64, 64, 32))
    sums = core.mma_op(core.load_a(left), core.load_b(right), sums)
    core.store_d(LayoutTensor(out).tile(row, column, (64, 64)), sums)

See also `layout_tensor` (views).
"""

from __future__ import annotations

from ..dsl import AnyDType, Parts, gpu, static_assert, struct
from .layout_tensor import LayoutTensor
from .views import Reshaped, memory_shape

__all__ = ["TensorCore"]


@struct
class TensorCore:
    """Products of M x K by K x N numbers, which the threads of a block hold together.

    Attributes:
        out_type: the dtype of sums: float32 for float16, bfloat16 and float32, int32 for int8 and uint8, float64.
        in_type: the dtype of both factors.
        shape: (M, N, K) of a product of the block: multiples of 16, of 8 and of 16.
        transpose_b: whether the second factor lies as N x K.
        precision: "ieee", or "tf32" for float32 factors rounded to 10 bits.
    """

    out_type: AnyDType
    in_type: AnyDType
    shape: Parts
    transpose_b: bool = False
    precision: str = "ieee"

    def zero(self) -> Parts:
        """Sums of zeros: a tile of M x N."""
        return gpu.tile[self.out_type](self.shape[0], self.shape[1])

    def load_a(self, view: LayoutTensor) -> Parts:
        """The first factor: M x K numbers of shared memory, or of a tensor.

        Raises:
            EinkornError: EK0215, another dtype or shape, or a view whose elements are not neighbours.
        """
        return self.loaded(view, (self.shape[0], self.shape[2]), "load_a")

    def load_b(self, view: LayoutTensor) -> Parts:
        """The second factor: K x N numbers; with `transpose_b` N x K."""
        n, k = self.shape[1:]
        if self.transpose_b:
            return self.loaded(view, (n, k), "load_b").transpose()
        return self.loaded(view, (k, n), "load_b")

    def load_c(self, view: LayoutTensor) -> Parts:
        """Sums from memory: M x N numbers, cast to `out_type`."""
        return gpu.load(_part(view, (self.shape[0], self.shape[1]), "load_c"), self.out_type)

    def mma_op(self, a: Parts, b: Parts, c: Parts) -> Parts:
        """The tile c + a @ b."""
        return gpu.dot(a, b, c, precision=self.precision)

    def store_d(self, view: LayoutTensor, d: Parts) -> None:
        """Stores sums, cast to the dtype of the view; what lies beyond the tensor is left out."""
        d.cast(view.dtype).store(_part(view, (self.shape[0], self.shape[1]), "store_d"))

    def loaded(self, view: LayoutTensor, shape: Parts, method: str) -> Parts:
        """A factor as a tile."""
        static_assert(view.dtype == self.in_type, f"{method}: a view of {view.dtype}, not {self.in_type}")
        return gpu.load(_part(view, shape, method))


def _part(view: LayoutTensor, shape: Parts, method: str) -> Parts:
    """A view as `x.tile` gives it."""
    whole = view.tile(0, 0, shape) if view.rank == 2 else view
    static_assert(whole.rank == 2 and view.shape == shape, f"{method}: a view of {shape}, not of {view.shape}")
    plain = not isinstance(whole.memory, Reshaped) and whole.width == 1 and whole.steps == (1, 1)
    plain = plain and whole.along == (0, 1) and len(memory_shape(whole.memory)) == 2
    static_assert(plain, f"{method}: a view of rows and columns of memory of two axes, as tile gives it")
    return whole.memory[whole.starts[0] :, whole.starts[1] :].tile(0, 0, shape)
