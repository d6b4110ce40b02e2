"""Reads the author's places from locations as MLIR prints them.

Diagnostics hand out locations that cannot be requested their parts, so that the printed form is read.

See also `lowering.module` (what emission writes as locations).
"""

from __future__ import annotations

import re

from ...dsl.diagnostics.places import Place

_FILE_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)(?: to (?:(\d+))?:(\d+))?')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")


def places_of(location: str) -> list[Place]:
    """The places in a location as MLIR prints it, innermost first; those in the MLIR text itself are left out.

    Call sites give callee then callers, fused locations their parts in order.
    """
    places = []
    for file, line, column, end_line, end_column in _FILE_LOCATION.findall(location):
        if file == "-":
            continue
        name = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if len(match[1]) == 2 else match[1], file)
        # Locations count columns from 1 and end after the last one, as places do.
        end = (int(end_line or line), int(end_column)) if end_column else (0, 0)
        places.append(Place(name, int(line), int(column), *end))
    return places


def place_of(location: str) -> Place | None:
    """The innermost place of a location, or None when it names none."""
    return next(iter(places_of(location)), None)
