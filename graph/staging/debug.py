"""Holds the settings of graphs for debugging: `Graph.debug`.

See also `engine.debug` (settings of sessions).
"""

from __future__ import annotations

from ..arguments import flag_of


class GraphDebug:
    """Settings for debugging that hold for all graphs of the process."""

    def __init__(self) -> None:
        self._source_tracebacks = False

    @property
    def source_tracebacks(self) -> bool:
        """Whether an op keeps the lines of all calls that led to it, and not just its own line: errors name them."""
        return self._source_tracebacks

    @source_tracebacks.setter
    def source_tracebacks(self, value: bool) -> None:
        self._source_tracebacks = flag_of("source_tracebacks", value)

    def reset(self) -> None:
        """Sets everything to its default."""
        self._source_tracebacks = False


GRAPH_DEBUG = GraphDebug()
