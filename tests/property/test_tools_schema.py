"""On plain schemas our check and the library's agree; stages keep every order that matters."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sidecar.tools import plain_schema
from sidecar.tools.scheduling import Planned, must_wait, stages

TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.0, 1.0, 2.5]), st.text("xy", max_size=3)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
SMALL = st.integers(0, 3)


def keyword(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.just(name), values)


def schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords = st.one_of(
        keyword("type", st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=2))),
        keyword("properties", st.dictionaries(NAMES, inner, max_size=2)),
        keyword("additionalProperties", st.one_of(st.booleans(), inner)),
        keyword("required", st.lists(NAMES, max_size=2, unique=True)),
        keyword("items", inner),
        keyword("enum", st.lists(VALUES, min_size=1, max_size=3)),
        keyword("const", VALUES),
        *(
            keyword(n, SMALL)
            for n in ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
        ),
        *(
            keyword(n, st.sampled_from([-1, 0, 1.5, 2]))
            for n in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        ),
        keyword("description", st.just("x")),
    )
    return st.lists(keywords, max_size=4).map(dict)


SCHEMAS = st.recursive(st.one_of(st.just(True), st.just({})), schemas_of, max_leaves=4)


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, VALUES)
def test_our_check_and_the_librarys_agree(schema: Any, value: Any) -> None:
    assert plain_schema.is_plain(schema)
    ours = not list(plain_schema.problems(schema, value))
    assert ours == Draft202012Validator(schema).is_valid(value), (schema, value)


KEYS = st.sampled_from([None, "/", "/w", "/w/a", "/w/a/b", "/w/ab", "lock"])
CALLS = st.lists(st.builds(Planned, st.booleans(), KEYS, st.booleans()), max_size=8)


@given(CALLS)
def test_stages_hold_every_call_once_and_keep_the_order_that_matters(calls: list[Planned]) -> None:
    groups = stages(calls)
    assert sorted(i for group in groups for i in group) == list(range(len(calls)))
    stage = {i: n for n, group in enumerate(groups) for i in group}
    for later in range(len(calls)):
        waits_for = [stage[earlier] for earlier in range(later) if must_wait(calls[later], calls[earlier])]
        assert stage[later] == max((n + 1 for n in waits_for), default=0)
