"""Whatever a fact holds, its file reads back as the same fact and the same bytes."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.memory import FactInput
from sidecar import frontmatter
from sidecar.memory import facts
from sidecar.memory.facts import InvalidFact, parse, serialise
from sidecar.memory.times import from_iso, to_iso

TEXTS = st.text(max_size=60) | st.sampled_from(
    [
        "---",
        "a: b",
        "# x",
        "'",
        '"\\',
        "\u2028x\u0085y",
        "\ufeff\x7f\x1b",
        "yes",
        "null",
        "[a",
        "- a",
        "&x *x !t",
        "% @`",
        "😀",
    ]
)
TIMES = st.integers(min_value=0, max_value=4_000_000_000_000)


@st.composite
def inputs(draw: st.DrawFn) -> FactInput:
    given = FactInput(
        name=draw(TEXTS),
        description=draw(TEXTS),
        type=draw(st.sampled_from(facts.TYPES)),
        body=draw(st.lists(TEXTS, max_size=6).map("\n".join)),
        title=draw(TEXTS),
        keywords=tuple(draw(st.lists(TEXTS, max_size=4))),
        expires_at=draw(st.none() | TIMES.map(to_iso)),
    )
    try:
        return facts.checked(given)
    except InvalidFact:
        return facts.checked(FactInput(name="n", description="d", type=given.type, body=given.body + "b"))


@given(inputs(), TIMES)
@settings(max_examples=300)
def test_a_file_reads_back(fact_input: FactInput, now: int) -> None:
    fact = facts.created("fact_1", fact_input, now)
    text = serialise(fact)
    parsed = parse(text, fact_id="fact_1", scope="project", modified_ms=0)
    assert parsed.complete
    assert parsed.fact == fact
    assert serialise(parsed.fact) == text
    assert facts.checked(facts.as_input(fact)) == facts.as_input(fact)


@given(inputs(), TIMES)
@settings(max_examples=200)
def test_our_own_form_means_to_yaml_what_it_means_to_us(fact_input: FactInput, now: int) -> None:
    parts = frontmatter.split(serialise(facts.created("fact_1", fact_input, now)))
    assert parts is not None
    quick = facts._read_canonical(parts[0])
    assert quick is not None
    assert quick == frontmatter.read(parts[0])


@given(st.text(max_size=300))
@settings(max_examples=300)
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for candidate in (text, f"---\n{text}\n---\nbody", f"---\ntype: user\ndescription: {text}\n---\nb"):
        try:
            parsed = parse(candidate, fact_id="f", scope="global", modified_ms=0)
        except InvalidFact:
            continue
        again = parse(serialise(parsed.fact), fact_id="f", scope="global", modified_ms=1)
        assert again.fact == parsed.fact


@given(TIMES)
def test_times_read_back(ms: int) -> None:
    assert from_iso(to_iso(ms)) == ms


@given(st.text(max_size=200))
def test_a_header_of_any_kind_is_read_or_refused(header: str) -> None:
    try:
        fields = frontmatter.read(header)
    except frontmatter.FrontMatterError:
        return
    assert all(isinstance(v, str | list) for v in fields.values())


def test_yaml_builds_nothing() -> None:
    assert frontmatter.read("a: !!python/object/apply:os.getcwd []\nb: 2026-01-01") == {"a": [], "b": "2026-01-01"}
    assert yaml.__version__
