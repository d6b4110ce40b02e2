"""`einkorn.functional`: functions over all ops, for tensors and for values of graphs. See docs/eager.md."""

from einkorn.graph.eager.functional import *  # noqa: F403
from einkorn.graph.eager.functional import __all__ as __all__
