"""`einkorn.profile`: names for parts of a program in profiles and traces. See docs/graph.md."""

from einkorn.graph.profiling.profile import Event, Profile, ProfileRow
from einkorn.graph.profiling.spans import record, span

__all__ = ["Event", "Profile", "ProfileRow", "record", "span"]
