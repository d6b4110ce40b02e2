"""A name of the language without an implementation is reported as a fault of Einkorn, not of the kernel."""

from __future__ import annotations

import pytest

from einkorn.dsl.diagnostics.errors import InternalError
from einkorn.dsl.frontend.python.register import implementation


def test_the_error_names_the_decorator_that_is_missing() -> None:
    with pytest.raises(InternalError, match=r"no function under @implements\(no_such_name\)") as caught:
        implementation("no_such_name")
    assert caught.value.code == "EK0905"
