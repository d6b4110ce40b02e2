"""Remembers which graphs are being built, in each thread and task: ops and weights join the innermost.

See also `graph` (what a graph is).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

# Graphs, the innermost last.
ACTIVE: ContextVar[tuple[Any, ...]] = ContextVar("einkorn_active_graphs", default=())
