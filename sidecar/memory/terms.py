"""Text to search terms. Pure.

Latin (and other spaced) words are whole and case folded; runs of Chinese, Japanese and Korean are cut into bigrams.
Identifiers are one term each; a document has their parts as terms too, a query only what stands between dots.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.memory.stopwords import CJK_BIGRAMS, CJK_PARTICLES, WORDS

MAX_QUERY_CHARS: Final = 8_000
"""What is looked at of a longer query: words that matter come early or often."""

MAX_QUERY_TERMS: Final = 200

SHORT_QUERY_TERMS: Final = 2
SHORT_QUERY_WORDS: Final = 4
LONG_WORD_LETTERS: Final = 6
"""In a query of at most two terms (and four words, with those that are no terms: "what is Kubernetes?") a word of six
letters is distinctive by itself."""

_CJK: Final = (
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
)
_W: Final = rf"[^\W{_CJK}]"
_TOKEN = re.compile(rf"([{_CJK}]+)|((?<!\w)#(?={_W}))?({_W}+(?:[.'’]{_W}+)*)(#|\+\+)?")
_JOINT = re.compile(r"[._#'+]")
_VERSION = re.compile(r"[vV]?\d+(?:\.\w+)*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_HIRAGANA = re.compile("[\u3040-\u309f]")


class _Token(NamedTuple):
    text: str
    cjk: bool


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(unicodedata.normalize("NFKC", text)):
        run, hash_before, word, after = found.groups()
        if run is not None:
            if len(run) == 1:
                yield _Token(run, True)
            for start in range(len(run) - 1):
                yield _Token(run[start : start + 2], True)
        else:
            yield _Token((hash_before or "") + _possessive_off(word) + (after or ""), False)


def _possessive_off(word: str) -> str:
    return word[:-2] if word[-2:] in ("'s", "’s", "'S", "’S") else word.replace("’", "'")


def document_terms(text: str) -> list[str]:
    """The terms of a text to be found, with repetitions; words that say nothing by themselves are left out."""
    terms: list[str] = []
    for token in _tokens(text):
        term = token.text.casefold()
        if token.cjk:
            terms.append(term)
            continue
        if term not in WORDS:
            terms.append(term)
        if _has_parts(token.text):
            terms.extend(p for p in _parts(token.text) if p != term and p not in WORDS)
    return terms


def _has_parts(word: str) -> bool:
    return _JOINT.search(word) is not None or _inner_capital(word)


def _parts(word: str) -> list[str]:
    """`compaction.softRatio` has `compaction`, `softratio`, `soft`, `ratio`; digits alone only after `#`."""
    found: dict[str, None] = {}
    bare = word.strip("#+")
    if bare != word and len(bare) > 1:
        found[bare] = None
    for piece in bare.split("."):
        found[piece] = None
        for name in piece.split("_"):
            found[name] = None
            found.update(dict.fromkeys(_CAMEL.split(name)))
    return [p.casefold() for p in found if len(p) > 1 and (not p.isdigit() or p == bare)]


def _inner_capital(word: str) -> bool:
    """`getUser`, `GitHub`; not `API`, which is as common as a word."""
    rest = word.lstrip("#")[1:]
    return rest != rest.lower() and word != word.upper()


@dataclass(frozen=True, slots=True)
class Query:
    """What a question asks for. `terms` are unique, in order; one of `distinctive` found is enough."""

    terms: tuple[str, ...]
    distinctive: frozenset[str]


def parse_query(text: str) -> Query:
    """The terms of a question that can be evidence: no function words, no particles, no bigram across them."""
    tokens = list(dict.fromkeys(_tokens(text[:MAX_QUERY_CHARS])))
    if len(tokens) == 1 and tokens[0].cjk and len(tokens[0].text) == 2:
        return Query((tokens[0].text,), frozenset({tokens[0].text}))
    kept = [t for t in tokens if _is_evidence(t)][:MAX_QUERY_TERMS]
    short = len(kept) <= SHORT_QUERY_TERMS and len(tokens) <= SHORT_QUERY_WORDS
    terms: dict[str, None] = {}
    distinctive: set[str] = set()
    for token in kept:
        for word in (token.text, *_dotted(token)):
            term = word.casefold()
            terms[term] = None
            if not token.cjk and (_is_identifier(word) or (short and _is_long(word))):
                distinctive.add(term)
    return Query(tuple(terms), frozenset(distinctive))


def _dotted(token: _Token) -> list[str]:
    if token.cjk or "." not in token.text or _VERSION.fullmatch(token.text):
        return []
    pieces = token.text.split(".")
    return [p for p in pieces if len(p) > 1 and not p.isdigit() and p.casefold() not in WORDS]


def _is_evidence(token: _Token) -> bool:
    if not token.cjk:
        term = token.text.casefold()
        return term not in WORDS and not (len(term) == 1 and term.isalnum())
    if len(token.text) == 1 or token.text in CJK_BIGRAMS:
        return False
    return not (CJK_PARTICLES.intersection(token.text) or _HIRAGANA.search(token.text))


def _is_identifier(word: str) -> bool:
    """A digit, `_`, `.`, `#` or an inner capital. A bare number of one or two digits is a count, not a name."""
    if word.isdigit():
        return len(word) > 2
    return any(c.isdigit() or c in "_.#" for c in word) or _inner_capital(word)


def _is_long(word: str) -> bool:
    return sum(c.isalpha() for c in word) >= LONG_WORD_LETTERS
