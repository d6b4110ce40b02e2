"""The reference of the C API is made from its headers, and the page of the C API calls every function in a program."""

from __future__ import annotations

import re

from support import c_api_page
from support.c_api_page import EXAMPLES, PAGE, declaration, declared, examples


def test_the_reference_is_made_from_the_headers() -> None:
    assert PAGE.read_text(encoding="utf-8") == c_api_page.page(), "run: make c-api-page"


def test_every_function_is_in_the_reference_with_what_it_does() -> None:
    names = declared()
    assert len(names) == len(set(names)) > 60
    entries = dict(re.findall(r"^#### `(\w+)`\n\n(.*?)(?=\n#|\Z)", c_api_page.page(), re.MULTILINE | re.DOTALL))
    assert sorted(entries) == sorted(names)
    for name, entry in entries.items():
        shown = rf"```c\n[^`]*\b{name}\([^`]*\);\n```\n\n[A-Z].+\. Example: \[.*\)\.\n"
        assert re.fullmatch(shown, entry, re.DOTALL), name


def test_every_function_is_called_by_a_program_of_the_page() -> None:
    called = examples()
    assert [name for name in declared() if name not in called] == []
    assert [name for name in called if name not in declared()] == []
    text = EXAMPLES.read_text(encoding="utf-8")
    programs = re.findall(r"^```c\n// (\w+)\.c$", text, re.MULTILINE)
    assert len(programs) >= 8
    for program in programs:  # tests/docs/test_documents.py runs what stands in console blocks
        assert re.search(rf"^\$ cc {program}\.c .*-o {program}\n\$ \./{program}\n\S", text, re.MULTILINE), program


def test_a_function_without_a_comment_or_a_program_shows() -> None:
    shown = declaration("EINKORN_API int M_nothing(void);", {}, {"M_nothing"})
    assert shown == "\n#### `M_nothing`\n\n```c\nint M_nothing(void);\n```\n"
