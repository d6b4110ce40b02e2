"""Names the indices that a thread of a grid can request, and says whose threads have one and the same.

See also `inference.language.grids` (what an index is made of).
"""

from __future__ import annotations

from .program import Scope

INDEX_SCOPES = {  # whose threads have one index
    "thread_idx": Scope.none,
    "block_idx": Scope.block,
    "lane_idx": Scope.none,
    "warp_idx": Scope.warp,
    "cluster_idx": Scope.cluster,
    "block_in_cluster": Scope.block,
}
WITHIN_BLOCKS = ("lane_idx", "warp_idx")  # threads count along x, then y, then z
WITHIN_CLUSTERS = ("cluster_idx", "block_in_cluster")
INDICES = (
    *(f"{what}.{axis}" for what in INDEX_SCOPES if what not in WITHIN_BLOCKS for axis in "xyz"),
    *WITHIN_BLOCKS,
)
