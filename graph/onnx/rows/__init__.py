"""The rows of the table of op types, a file a family. Importing this fills the table.

Input: nothing. Output: `find_row`. Non-goals: whatever a row says.
"""

from __future__ import annotations

from ..table import find_row
from . import elementwise, matmul, movement, normalisation, reduction, shapes

__all__ = ["find_row"]
_FAMILIES = (elementwise, matmul, movement, normalisation, reduction, shapes)
