"""Shows Einkorn's log to users that request it."""

from __future__ import annotations

import functools
import logging
import os

from .knobs import knobs

LEVELS = ("notset", "trace", "debug", "info", "warning", "error", "critical")
TRACE = 5  # below debug


def show_log(level: str) -> None:
    """Logs what is of this level or above, on standard error where the program has no log of its own."""
    if not logging.getLogger().handlers:
        logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("einkorn").setLevel(TRACE if level == "trace" else level.upper())


@functools.cache
def start_log() -> None:
    """Shows our log on standard error when `EINKORN_LOG` requests it and the program has no log of its own."""
    if "EINKORN_LOG" in os.environ and not logging.getLogger().handlers:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("einkorn").setLevel(knobs.log.upper())
