"""The form of facts: what is accepted, what the file says, what counts as equal."""

from __future__ import annotations

import pytest

from protocol.memory import FactInput
from sidecar.memory.facts import InvalidFact, canonical, checked, identities, parse, serialise, updated
from sidecar.memory.times import from_iso, to_iso
from tests.support.memory import NOW, fact, given


def read(text: str, fact_id: str = "fact_1", scope: str = "project"):  # type: ignore[no-untyped-def]
    return parse(text, fact_id=fact_id, scope=scope, modified_ms=NOW)  # type: ignore[arg-type]


def test_the_canonical_file() -> None:
    made = fact(name='say "hi"', title="", keywords=("uv", "构建"), expires_at="2030-01-01", body="One.\n\n---\nTwo.")
    text = serialise(made)
    assert text == (
        "---\n"
        "id: fact_1\n"
        "revision: 1\n"
        "created_at: 2026-09-21T14:13:20Z\n"
        "updated_at: 2026-09-21T14:13:20Z\n"
        'name: "say \\"hi\\""\n'
        'title: ""\n'
        'description: "How it is built"\n'
        "type: project\n"
        "scope: project\n"
        'keywords: ["uv", "构建"]\n'
        "expires_at: 2030-01-01T00:00:00Z\n"
        "---\n\nOne.\n\n---\nTwo.\n"
    )
    parsed = read(text)
    assert parsed.complete
    assert parsed.fact == made


def test_a_person_may_write_any_yaml_and_leave_out_what_we_keep() -> None:
    parsed = read(
        "---\r\ntype: reference\r\ndescription: >\r\n  a wiki\r\n  page\r\nkeywords: wiki, ops\r\n"
        "# a comment\r\n---\r\n\r\nSee the wiki.\r\n",
        fact_id="wiki-page",
    )
    assert not parsed.complete
    assert (parsed.fact.id, parsed.fact.name, parsed.fact.revision) == ("wiki-page", "wiki-page", 1)
    assert parsed.fact.description == "a wiki page"
    assert parsed.fact.keywords == ("wiki", "ops")
    assert parsed.fact.body == "See the wiki."
    assert parsed.fact.created_at == to_iso(NOW)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("id: fact_1", "id: fact_2"), "id"),
        (("scope: project", "scope: global"), "scope"),
        (("type: project", "type: rumour"), "type"),
        (("revision: 1", "revision: zero"), "revision"),
        (("revision: 1", "revision: 0"), "revision"),
        (("created_at: 2026-09-21T14:13:20Z", "created_at: yesterday"), "created_at"),
        (('name: "Build tool"', "name: [a, b]"), "name"),
        (('description: "How it is built"', 'description: ""'), "description"),
        (("---\n\nRun make.", "\nRun make."), "file"),
        (('title: ""', "title: : :"), "file"),
        (("Run make.", ""), "body"),
    ],
)
def test_a_damaged_file_says_what_to_mend(change: tuple[str, str], field: str) -> None:
    text = serialise(fact())
    assert change[0] in text
    with pytest.raises(InvalidFact) as caught:
        read(text.replace(*change))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "  "}, "name"),
        ({"description": "\n"}, "description"),
        ({"body": " \n "}, "body"),
        ({"name": "n" * 201}, "name"),
        ({"keywords": tuple(f"k{i}" for i in range(65))}, "keywords"),
        ({"body": "b" * 100_001}, "body"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"expires_at": "0001-01-01T00:00:00+23:00"}, "expires_at"),
    ],
)
def test_input_that_cannot_be_kept(fields: dict[str, object], field: str) -> None:
    plain = {"name": "n", "description": "d", "type": "project", "body": "b"}
    with pytest.raises(InvalidFact) as caught:
        checked(FactInput(**{**plain, **fields}))  # type: ignore[arg-type]
    assert caught.value.field == field


def test_input_is_tidied() -> None:
    tidy = given(
        name=" a\n b ", body="x\r\ny\x00\ud83d", keywords=("k", "", "k"), expires_at="2030-01-01T02:00:00+02:00"
    )
    assert (tidy.name, tidy.body, tidy.keywords) == ("a b", "x\ny\ufffd\ufffd", ("k",))
    assert tidy.expires_at == "2030-01-01T00:00:00Z"


def test_an_update_keeps_id_creation_and_scope() -> None:
    old = fact(scope="global", at=NOW - 5)
    new = updated(old, given(body="Run ninja."), NOW)
    assert (new.id, new.revision, new.scope) == (old.id, 2, "global")
    assert (new.created_at, new.updated_at) == (old.created_at, to_iso(NOW))
    assert updated(old, given(scope="project"), NOW).scope == "project"


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Build Tool", "build-tool!", True),
        ("STRASSE", "straße", True),
        ("构建 工具", "构建工具。", True),
        ("ＡＢＣ１", "abc1", True),
        ("build tools", "build tool", False),
        ("v1.2", "v12", True),
    ],
)
def test_equal_after_folding_and_dropping_all_but_letters_and_digits(one: str, other: str, equal: bool) -> None:
    assert (canonical(one) == canonical(other)) is equal


def test_a_name_without_letters_equals_nothing() -> None:
    assert identities(given(name="!!!", title="", description="?")) == ()


def test_dates() -> None:
    assert to_iso(NOW + 7) == "2026-09-21T14:13:20.007Z"
    assert from_iso("2026-09-21T14:13:20.007Z") == NOW + 7
    assert from_iso("2026-09-21") == from_iso("2026-09-21T00:00:00+00:00")
    assert to_iso(-1) == "1969-12-31T23:59:59.999Z"
