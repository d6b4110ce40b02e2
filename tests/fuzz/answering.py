"""What the children of campaigns have in common: one request a line on standard input, one answer a line on standard
output, both JSON.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable

from einkorn.dsl.diagnostics.errors import EinkornError, InternalError


def answer_lines(answer: Callable[[str], object]) -> None:
    """Answers each line of standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels or LLVM print is no answer
    for line in sys.stdin:
        answers.write(json.dumps(answer(line)) + "\n")
        answers.flush()


def outcome_of(compare: Callable[[], str | None]) -> tuple[str, str]:
    """What became of a comparison, which says where results differ: "same", "differs", "refused" or "fault"; and more
    about it.
    """
    try:
        wrong = compare()
    except InternalError as error:
        return "fault", str(error)
    except EinkornError as error:
        return "refused", str(error)
    except Exception:
        return "fault", traceback.format_exc()
    return ("differs", wrong) if wrong is not None else ("same", "")
