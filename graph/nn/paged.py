"""What a layer of a model sees of a cache in pages: the rows of a batch, and their keys and values."""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ..eager import functional as F
from ..ops.cache import flash_attention_ragged, kv_cache_store


@dataclass(frozen=True)
class PagedCache:
    """The cache of a batch in a graph; see `ops.flash_attention_ragged` for its parts.

    Attributes:
        pages: the memory of all pages.
        offsets, lengths, table: which rows, stored places and pages each sequence has.
        positions: (rows), the place of each row in its sequence.
        last: (sequences), the number of the last row of each.
    """

    pages: Any
    offsets: Any
    lengths: Any
    table: Any
    positions: Any
    last: Any

    def attend(
        self, layer: int, query: Any, key: Any, value: Any, *, window: int | None = None, scale: float | None = None
    ) -> Any:
        """Stores keys and values of the rows, and attends to those of their sequences: (rows, heads, numbers)."""
        batch = (self.offsets, self.lengths, self.table)
        kv_cache_store(self.pages, key, value, *batch, layer=layer)
        return flash_attention_ragged(query, self.pages, *batch, layer=layer, window=window, scale=scale)

    def last_rows(self, x: object) -> Any:
        """Of (rows, numbers) the last row of each sequence."""
        return F.gather(x, self.last, 0)
