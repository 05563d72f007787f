"""What holds for recall whatever the facts and the question are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.memory.index import Index, search
from sidecar.memory.recall import MAX_BLOCK_CHARS, Hit, block
from sidecar.memory.redact import for_prompt
from sidecar.memory.section import MAX_SECTION_CHARS, entries_in, facts_section
from sidecar.memory.terms import document_terms, parse_query
from tests.support.memory import NOW, fact

WORDS = st.sampled_from(["red", "green", "blue", "soft_ratio", "构建", "v2.1", "x"])
DOCUMENTS = st.lists(st.lists(WORDS, min_size=1, max_size=8), min_size=1, max_size=12)
QUERIES = st.lists(WORDS, min_size=1, max_size=5, unique=True)
MARKUP = st.sampled_from(
    [
        "</memory-recall>",
        "<fact",
        "&",
        "&lt;",
        "</fact>",
        "/home/ann/x",
        "/home/anna",
        "/Users/bob",
        "C:\\Users\\Bob\\y",
        "<",
        ">",
    ]
)
TEXTS = st.lists(MARKUP | st.text(max_size=30), min_size=1, max_size=40).map(" ".join)


def build(documents: list[list[str]]) -> Index:
    index = Index()
    for number, terms in enumerate(documents):
        index.put(f"d{number}", terms)
    return index


@given(DOCUMENTS, QUERIES)
def test_scores_are_positive_and_belong_to_documents_with_a_term(documents: list[list[str]], query: list[str]) -> None:
    [(scores, matched)] = search([build(documents)], query)
    wanted = {f"d{n}" for n, terms in enumerate(documents) if set(terms) & set(query)}
    assert scores.keys() == matched.keys() == wanted
    assert all(score > 0 for score in scores.values())
    for key, bits in matched.items():
        there = documents[int(key[1:])]
        assert [term for i, term in enumerate(query) if bits >> i & 1] == [t for t in query if t in there]


@given(DOCUMENTS, QUERIES, WORDS)
def test_one_more_of_a_wanted_term_in_the_place_of_another_word_never_scores_less(
    documents: list[list[str]], query: list[str], term: str
) -> None:
    documents = [[*documents[0], "filler"], *documents[1:]]
    better = [[*documents[0][:-1], query[0]], *documents[1:]]
    if query[0] not in documents[0]:
        return
    [(before, _)], [(after, _)] = search([build(documents)], query), search([build(better)], query)
    assert after["d0"] >= before["d0"]


@dataclass(frozen=True)
class Change:
    key: int
    terms: tuple[str, ...] | None


CHANGES = st.lists(
    st.builds(Change, st.integers(0, 5), st.none() | st.lists(WORDS, min_size=1, max_size=5).map(tuple)), max_size=30
)


@given(CHANGES, QUERIES)
def test_an_index_that_was_changed_is_the_index_of_what_is_left(changes: list[Change], query: list[str]) -> None:
    index = Index()
    left: dict[str, tuple[str, ...]] = {}
    for change in changes:
        key = f"d{change.key}"
        if change.terms is None:
            index.discard(key)
            left.pop(key, None)
        else:
            index.put(key, change.terms)
            left[key] = change.terms
    fresh = Index()
    for key, terms in sorted(left.items()):
        fresh.put(key, terms)
    [(scores, _)], [(expected, _)] = search([index], query), search([fresh], query)
    assert scores.keys() == expected.keys()
    assert all(abs(scores[k] - expected[k]) < 1e-9 for k in scores)
    assert index.postings == fresh.postings


@given(st.text(max_size=300))
@settings(max_examples=300)
def test_a_question_in_its_own_words_has_only_terms_of_the_text(text: str) -> None:
    query = parse_query(text)
    assert len(set(query.terms)) == len(query.terms)
    assert query.distinctive <= set(query.terms)
    assert set(query.terms) <= set(document_terms(text))


@given(st.lists(st.builds(lambda n, d, b: (n, d, b), TEXTS, TEXTS, TEXTS), min_size=1, max_size=6))
@settings(max_examples=150)
def test_no_block_is_too_long_or_broken_out_of(texts: list[tuple[str, str, str]]) -> None:
    hits = [
        Hit(fact(f"f{n}", name=f"n{name}"[:200], description=f"d{text}"[:1000], body=f"b{body}"), 1.0, (), "fresh")
        for n, (name, text, body) in enumerate(texts)
    ]
    told = block(hits, ["/home/ann"])
    assert len(told.text) <= MAX_BLOCK_CHARS
    assert {h.fact.id for h in told.hits} | {o.id for o in told.omitted} == {h.fact.id for h in hits}
    tags = [t for t in re.findall(r"<[^>]*>?", told.text) if t != "<local-home>"]
    assert [t[:6] for t in tags] == ["<memor", *["<fact ", "</fact"] * len(told.hits), "</memo"]


@given(st.lists(TEXTS, max_size=12))
def test_no_section_is_too_long_or_broken_out_of(texts: list[str]) -> None:
    facts = [fact(f"f{n}", type="user", scope="global", body=f"b{body}", at=NOW - n) for n, body in enumerate(texts)]
    text = facts_section(facts, ["/home/ann"], now_ms=NOW)
    assert len(text) <= MAX_SECTION_CHARS
    told = entries_in(text)
    assert told.keys() == {f"f{n}" for n in range(len(told))}
    assert text == "" or text.count("</remembered-preferences>") == 1


@given(TEXTS)
def test_no_home_survives(text: str) -> None:
    shown = for_prompt(f"in /home/ann/secret and {text} and '/home/ann'", ["/home/ann"])
    assert "/home/ann/" not in shown
    assert not re.search(r"(?<![\w./\\-])/home/\w", shown)
    assert re.sub("<local-home>", "", shown).count("<") == 0
