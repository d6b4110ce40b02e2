"""Describes how a number depends on the threads of a block: `block_idx.x * 256 + thread_idx.x - 3`, and what warps make
of it.

The threads of a block are numbered along x, then y, then z, and cut into warps in this order. A number that counts as
they do takes neighbours in a warp, from a multiple of the warp's size on; so `thread_idx.x // 32` and `thread_idx.x <
64` are equal in all threads of a warp.

See also `scopes` (which values are what).
"""

from __future__ import annotations

import math

from ...dsl.diagnostics.dataclass import dataclass
from .program import Scope

Axes = tuple[int, int, int]


@dataclass(frozen=True)
class LinearForm:
    """A sum: a factor for each of `thread_idx.x`, `.y` and `.z`, a constant, and a rest that is equal in a scope.

    Attributes:
        multiple: what the rest is a multiple of; 0 where there is none.
        scope: where the rest is equal.
    """

    axes: Axes = (0, 0, 0)
    constant: int = 0
    multiple: int = 0
    scope: Scope = Scope.grid

    def plus(self, other: LinearForm, sign: int = 1) -> LinearForm:
        """The sum, or the difference."""
        x, y, z = (a + sign * b for a, b in zip(self.axes, other.axes, strict=True))
        multiple = math.gcd(self.multiple, other.multiple)
        return LinearForm((x, y, z), self.constant + sign * other.constant, multiple, min(self.scope, other.scope))

    def times(self, other: LinearForm) -> LinearForm | None:
        """The product, where one of them is a constant, or none of them follows the threads."""
        if other.is_constant:
            x, y, z = (a * other.constant for a in self.axes)
            factor = other.constant
            return LinearForm((x, y, z), self.constant * factor, abs(self.multiple * factor), self.scope)
        if self.is_constant:
            return other.times(self)
        if any(self.axes) or any(other.axes):
            return None
        return LinearForm(multiple=self.divisor * other.divisor, scope=min(self.scope, other.scope))

    @property
    def is_constant(self) -> bool:
        return not any(self.axes) and not self.multiple

    @property
    def divisor(self) -> int:
        """What constant and rest together are a multiple of."""
        return math.gcd(self.multiple, self.constant)


@dataclass(frozen=True)
class Lanes:
    """The threads of a block, and how many of them are a warp."""

    block: Axes
    warp: int

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    def of_axis(self, axis: int) -> Scope:
        """The widest scope whose threads have one index along an axis."""
        if self.block[axis] == 1:
            return Scope.grid
        return self.widened(Scope.none if math.prod(self.block[:axis]) % self.warp else Scope.warp)

    def widened(self, scope: Scope) -> Scope:
        """A scope, or a wider one that has no more threads."""
        if self.threads == 1:
            return Scope.block if scope < Scope.block else scope
        return Scope.block if scope is Scope.warp and self.threads <= self.warp else scope

    def quotient(self, form: LinearForm, divisor: int) -> Scope:
        """Where `form // divisor` is equal."""
        base = self._counted(form)
        if base is None or divisor <= 0:
            return Scope.none
        form, size = base
        if size and form.divisor % divisor == 0 and size <= divisor:
            return form.scope
        whole = divisor % self.warp == 0 and form.divisor % self.warp == 0
        return self.widened(min(form.scope, Scope.warp)) if whole else Scope.none

    def compared(self, name: str, a: LinearForm, b: LinearForm) -> Scope:
        """Where the comparison `a name b`, such as `lt`, is equal."""
        if name not in ("lt", "le", "gt", "ge"):
            return Scope.none
        if name in ("gt", "le"):  # not a > b is a <= b; a > b is b < a
            a, b = b, a
        return max(self._negative(a.plus(b, -1)), self._positive(b.plus(a, -1)))

    def _negative(self, form: LinearForm) -> Scope:
        """Where `form < 0` is equal, of one that grows with the threads."""
        base = self._counted(form)
        if base is None:
            return Scope.none
        form, size = base
        if size and not form.multiple and (form.constant >= 0 or form.constant + size <= 0):
            return form.scope
        return self.widened(min(form.scope, Scope.warp)) if form.divisor % self.warp == 0 else Scope.none

    def _positive(self, form: LinearForm) -> Scope:
        """Where `form > 0` is equal, of one that grows with the threads: it is no more than `not form - 1 < 0`."""
        return self._negative(form.plus(LinearForm(constant=1), -1))

    def _counted(self, form: LinearForm) -> tuple[LinearForm, int] | None:
        """A form that counts the threads of a warp one by one; axes that are equal in a warp belong to the rest.

        The number is how many threads of the block it counts one by one; 0 where it begins again in other warps.
        """
        x, y, _ = self.block
        strides = (1, x, x * y)
        if all(f == s for f, s, n in zip(form.axes, strides, self.block, strict=True) if n > 1):
            return LinearForm(strides, form.constant, form.multiple, form.scope), self.threads
        if x % self.warp or form.axes[0] != 1:
            return None
        rest = math.gcd(form.multiple, *(f for f, n in zip(form.axes[1:], self.block[1:], strict=True) if n > 1))
        return LinearForm(strides, form.constant, rest, min(form.scope, Scope.warp)), 0

    def same_rounds(self, low: LinearForm, high: LinearForm, step: LinearForm) -> bool:
        """Whether `range(low, high, step)` has as many rounds for every thread: it begins below the first step."""
        base = self._counted(low)
        if base is None or not step.is_constant or step.constant < 1 or any(high.axes) or high.scope < Scope.block:
            return False
        form, size = base
        first = size and not form.multiple and form.constant >= 0 and form.constant + size <= step.constant
        return bool(first) and high.divisor % step.constant == 0
