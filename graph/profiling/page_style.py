"""What the pages of measurements have in common: one file of HTML and SVG, light or dark, without JavaScript.

See also `profile_page`, `memory_page` (what is in the parts).
"""

from __future__ import annotations

import html
from collections.abc import Sequence

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #6b7280; --line: #d8dee4;
  --group: #3b6fb6; --task: #7aa6d8; --call: #c9d6e6; --least: #2e8b57; --more: #d9822b; --conflict: #c0392b }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #14171b; --faint: #98a2b0; --line: #30363d;
  --group: #6ea0e0; --task: #456f9f; --call: #2b3746; --least: #4caf7d; --more: #e39b4f; --conflict: #e2695b } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 1160px; padding: 0 1rem }
.faint { color: var(--faint) }
"""


def whole_page(title: str, style: str, parts: Sequence[str]) -> str:
    """One page of HTML with these parts."""
    head = f'<meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    return "\n".join(
        [
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{head}',
            f"<style>{_STYLE}{style}</style></head><body><h1>{html.escape(title)}</h1>",
            *parts,
            "</body></html>\n",
        ]
    )
