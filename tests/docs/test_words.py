"""Names, messages, docs and comments use plain terms: the words of `glossary.REFUSED` become fewer, never more."""

from __future__ import annotations

import pytest

from .glossary import LEFT, counted, words_in


def test_refused_words_become_fewer() -> None:
    now = counted()
    grown = {folder: f"{LEFT.get(folder, 0)} -> {n}" for folder, n in now.items() if n > LEFT.get(folder, 0)}
    assert not grown, f"words that tests/docs/glossary.py refuses were added: {grown}"
    fewer = {folder: f"{n} -> {now[folder]}" for folder, n in LEFT.items() if n > now[folder]}
    assert not fewer, f"`.venv/bin/python tests/docs/glossary.py` lowers these counts: {fewer}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What stands next to it melts into it.", ["melts"]),
        ("def _told_by(nobody): ...", ["told", "nobody"]),
        ("class HeardReport: ...", ["Heard"]),
        ("'x' is no tensor", ["is no tensor"]),
        ("The metadata of the whole network is returned.", []),
    ],
)
def test_words_are_found(text: str, words: list[str]) -> None:
    assert words_in(text) == words
