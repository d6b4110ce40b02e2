"""`@autotune({"rows": (4, 6, 8)})`: says over `@register` which parameters are chosen by trying.

See also `graph.tuning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ...diagnostics.errors import CompileError
from ...diagnostics.places import user_place
from ...signature.tuning import tuning_space
from .register import Kernel

K = TypeVar("K", bound=Kernel)


def autotune(
    space: Mapping[str, Iterable[object]],
    key: Iterable[str] = (),
    rounds: int = 3,
    limit: float = 10.0,
    exact: bool = True,
    tolerance: float | None = None,
) -> Callable[[K], K]:
    """Lets parameters of the kernel under it be chosen by trying, when it is first called with sizes of a new kind.

    All combinations of values are compiled, compared with the default and timed in another process, so that one which
    crashes or hangs costs itself alone. What was best is kept in the user's cache; `einkorn tune` does the same ahead
    of time, and puts it into a package. A call that says one of the parameters itself gets what it says.

    Args:
        space: for each parameter the values to try. The default is among what is compared, whether it is listed or not.
        key: dims of the inputs on whose sizes the choice depends: one choice for each power of two. Without, there is
            one choice for all sizes.
        rounds: how many times each combination is timed.
        limit: how many seconds one may take, compilation included.
        exact: False lets results differ from those of the default by rounding: they are compared with those of the
            kernel in float64, where its signature allows that, and may be as far from them as rounding explains, or as
            those of the default are.
        tolerance: lets results differ by this share of them (1e-5, say), whatever the default's do.

    Raises:
        CompileError: EK0349, the kernel has no such parameter, value or dim, or the tolerance is invalid.
    """

    def record(kernel: K) -> K:
        place = user_place()
        if not isinstance(kernel, Kernel):
            text = "@autotune goes above @register, not below it"
            raise CompileError(text, code="EK0349", place=place, hint="swap the two lines")
        kernel.tuning = tuning_space(kernel.schema, space, key, rounds, limit, exact, place, tolerance)
        return kernel

    return record
