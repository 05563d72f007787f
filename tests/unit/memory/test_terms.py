"""Words, identifiers and bigrams; what is evidence and what is distinctive."""

from __future__ import annotations

import pytest

from sidecar.memory.terms import MAX_QUERY_TERMS, document_terms, parse_query


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Deploy runs on main", ["deploy", "runs", "main"]),
        ("数据库密码", ["数据", "据库", "库密", "密码"]),
        ("用uv管理", ["用", "uv", "管理"]),
        ("soft_ratio", ["soft_ratio", "soft", "ratio"]),
        ("getUserContext()", ["getusercontext", "user", "context"]),
        ("compaction.softRatio", ["compaction.softratio", "compaction", "softratio", "soft", "ratio"]),
        ("#123", ["#123", "123"]),
        ("C++ and C#", ["c++", "c#"]),
        ("the user's pre-commit", ["user", "pre", "commit"]),
        ("ＡＰＩ", ["api"]),
        ("", []),
    ],
)
def test_terms_of_a_document(text: str, terms: list[str]) -> None:
    assert document_terms(text) == terms


@pytest.mark.parametrize(
    ("text", "terms", "distinctive"),
    [
        ("What is the port of the database?", ("port", "database"), ()),
        ("kubernetes", ("kubernetes",), ("kubernetes",)),
        ("what is kubernetes?", ("kubernetes",), ("kubernetes",)),
        ("what did you have for lunch on thursday", ("lunch", "thursday"), ()),
        ("deploy to kubernetes cluster", ("deploy", "kubernetes", "cluster"), ()),
        ("linux", ("linux",), ()),
        ("why does SIDECAR_HOME fail again", ("sidecar_home", "fail"), ("sidecar_home",)),
        ("is parseConfig still called there", ("parseconfig", "called"), ("parseconfig",)),
        ("open #42 for me", ("open", "#42"), ("#42",)),
        ("does 8080 answer to the browser", ("8080", "answer", "browser"), ("8080",)),
        ("list 12 ideas for a party game", ("list", "12", "ideas", "party", "game"), ()),
        ("look into a.b please, it fails", ("a.b", "fails"), ("a.b",)),
        ("the API of the shop is broken", ("api", "shop", "broken"), ()),
        ("python v3.11 or older then", ("python", "v3.11", "older"), ("v3.11",)),
        ("构建", ("构建",), ("构建",)),
        ("什么", ("什么",), ("什么",)),
        ("我们的项目用什么构建", ("项目", "目用", "构建"), ()),
        ("请问怎么部署", ("部署",), ()),
        ("the of and", (), ()),
        ("!?", (), ()),
    ],
)
def test_what_a_question_asks_for(text: str, terms: tuple[str, ...], distinctive: tuple[str, ...]) -> None:
    query = parse_query(text)
    assert query.terms == terms
    assert query.distinctive == frozenset(distinctive)


def test_a_question_of_any_length_has_a_bounded_number_of_terms() -> None:
    assert len(parse_query(" ".join(f"word{n}" for n in range(5_000))).terms) <= MAX_QUERY_TERMS
