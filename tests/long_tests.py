"""The tests that `make test` leaves out and `make test-long` runs; the continuous integration runs both.

An entry is a folder, a file or a test: campaigns, packaging, callers of other libraries, whole documents, and tests of
many seconds whose class a quick test covers as well.
"""

from __future__ import annotations

LONG = ()


def is_long(node: str) -> bool:
    """Whether a test, by its node id from the root of the repository, belongs to an entry of `LONG`."""
    test = node.partition("[")[0].removeprefix("tests/")
    return any(test == entry or test.startswith((f"{entry}/", f"{entry}::")) for entry in LONG)
