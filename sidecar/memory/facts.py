"""The form of a fact: checking, the file's text and back, and what counts as equal. Pure.

A file is front matter and a body. Written by us it is *canonical*: reading it and writing it again gives the same
bytes, and it is read without a YAML parser. People may write anything else that YAML allows, and keys of their own,
which are kept.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Final, get_args

import msgspec
from msgspec.structs import replace

from protocol.memory import Fact, FactInput, FactScope, FactType
from sidecar import frontmatter
from sidecar.frontmatter import FrontMatterError, Header
from sidecar.memory.foreign import OWN, foreign_lines
from sidecar.memory.times import from_iso, to_iso

TYPES: Final = get_args(FactType)

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]*", re.ASCII)
_LINE = re.compile(r"(\w+): (.+)", re.ASCII)
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_NO_LETTER_OR_DIGIT = re.compile(r"[\W_]+")
_UNCLEAN = re.compile("[\x00\ud800-\udfff]")


class InvalidFact(ValueError):
    """A fact that cannot be kept. `field` names what is wrong, the text says what it must be."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


# ---------------------------------------------------------------- checking


def clean(text: str) -> str:
    """NULs and lone surrogates become U+FFFD."""
    return _UNCLEAN.sub("\ufffd", text)


def checked(given: FactInput) -> FactInput:
    """The input with clean text, `\\n` line ends, single-line names and its date in UTC. Raises `InvalidFact`."""
    tidy = replace(
        given,
        name=_one_line(given.name),
        title=_one_line(given.title),
        description=_one_line(given.description),
        keywords=tuple(dict.fromkeys(k for k in map(_one_line, given.keywords) if k)),
        body=_lines_ended(clean(given.body)),
        expires_at=_date("expires_at", given.expires_at),
    )
    for field in ("name", "description", "body"):
        if not getattr(tidy, field).strip():
            raise InvalidFact(field, "must not be blank")
    try:
        return msgspec.convert(msgspec.to_builtins(tidy), FactInput)
    except msgspec.ValidationError as error:
        detail, _, where = str(error).partition(" - at `$.")
        raise InvalidFact(re.split(r"[\[`]", where)[0] or "fact", detail) from None


def _one_line(text: str) -> str:
    return " ".join(clean(text).split())


def _date(field: str, text: str | None) -> str | None:
    if text is None or not text.strip():
        return None
    try:
        return to_iso(from_iso(text))
    except (ValueError, OverflowError):
        raise InvalidFact(field, "must be an ISO 8601 date in UTC, e.g. 2026-05-01T09:30:00Z") from None


def created(fact_id: str, given: FactInput, now_ms: int) -> Fact:
    """A first revision of checked input. Without a scope it is the project's."""
    now = to_iso(now_ms)
    return Fact(
        id=fact_id,
        revision=1,
        created_at=now,
        updated_at=now,
        name=given.name,
        title=given.title,
        description=given.description,
        type=given.type,
        scope=given.scope or "project",
        keywords=given.keywords,
        expires_at=given.expires_at,
        body=given.body,
    )


def updated(old: Fact, given: FactInput, now_ms: int) -> Fact:
    """The next revision: everything is as given but the id, the creation and, if not given, the scope."""
    return replace(
        created(old.id, given, now_ms),
        revision=old.revision + 1,
        created_at=old.created_at,
        scope=given.scope or old.scope,
        last_verified_at=old.last_verified_at,
    )


def without_body(fact: Fact) -> Fact:
    return replace(fact, body=None)


def as_input(fact: Fact) -> FactInput:
    return FactInput(
        name=fact.name,
        description=fact.description,
        type=fact.type,
        body=fact.body or "",
        title=fact.title,
        scope=fact.scope,
        keywords=fact.keywords,
        expires_at=fact.expires_at,
    )


# ---------------------------------------------------------------- equality


def canonical(text: str) -> str:
    """What is compared when two names, titles or descriptions are *equal*: letters and digits, case folded.
    Empty for a text without any; such texts equal nothing."""
    return _NO_LETTER_OR_DIGIT.sub("", unicodedata.normalize("NFKC", text).casefold())


def identities(fact: Fact | FactInput) -> tuple[tuple[str, str], ...]:
    """The (field, canonical text) pairs of a fact: two facts are equal when they share one."""
    pairs = ((field, canonical(getattr(fact, field))) for field in ("name", "title", "description"))
    return tuple(pair for pair in pairs if pair[1])


# ---------------------------------------------------------------- the file's text


def serialise(fact: Fact, foreign: str = "") -> str:
    """The canonical text of a fact's file; behind our fields the lines that others wrote (`Parsed.foreign`). Those
    are left out if the file could not be read with them."""
    plain = _text_of(fact, "")
    if not foreign:
        return plain
    with_all = _text_of(fact, foreign)
    try:
        read_back = parse(with_all, fact_id=fact.id, scope=fact.scope, modified_ms=0).fact
    except InvalidFact:
        return plain
    return with_all if read_back == fact else plain


def _text_of(fact: Fact, foreign: str) -> str:
    lines = [
        f"id: {fact.id}",
        f"revision: {fact.revision}",
        f"created_at: {fact.created_at}",
        f"updated_at: {fact.updated_at}",
        f"name: {_quoted(fact.name)}",
        f"title: {_quoted(fact.title)}",
        f"description: {_quoted(fact.description)}",
        f"type: {fact.type}",
        f"scope: {fact.scope}",
        f"keywords: [{', '.join(map(_quoted, fact.keywords))}]",
    ]
    if fact.expires_at is not None:
        lines.append(f"expires_at: {fact.expires_at}")
    if fact.last_verified_at is not None:
        lines.append(f"last_verified_at: {fact.last_verified_at}")
    header = "\n".join(lines)
    return f"---\n{header}\n{foreign}---\n\n{fact.body or ''}\n"


def _quoted(text: str) -> str:
    """JSON, and YAML too: what YAML does not take raw is escaped."""
    raw = msgspec.json.encode(text).decode("utf-8")
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found.group()):04x}", raw)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file's fact. `complete` is false when something that only we write (id, revision, dates) had to be filled in:
    a person made the file. `foreign` are the lines of the header that are not ours."""

    fact: Fact
    complete: bool
    foreign: str = ""


def parse(text: str, *, fact_id: str, scope: FactScope, modified_ms: int) -> Parsed:
    """The fact in a file of the store. Raises `InvalidFact` with what to mend.

    `fact_id` comes from the file's name, `scope` from its folder: the text may leave them out, not contradict them.
    """
    parts = frontmatter.split(text)
    if parts is None:
        raise InvalidFact("file", "does not begin with front matter between two `---` lines")
    header, body = parts
    try:
        canonical_fields = _read_canonical(header)
        fields = canonical_fields or frontmatter.read(header)
    except FrontMatterError as error:
        raise InvalidFact("file", str(error)) from None
    _must_agree(fields, "id", fact_id, "the file's name")
    _must_agree(fields, "scope", scope, "its folder")
    given = checked(_input_of(fields, fact_id, scope, _body(body)))
    modified = to_iso(modified_ms)
    complete = all(fields.get(key) for key in ("id", "revision", "created_at", "updated_at"))
    fact = replace(
        created(fact_id, given, modified_ms),
        revision=_revision(fields),
        created_at=_date("created_at", _text(fields, "created_at")) or modified,
        updated_at=_date("updated_at", _text(fields, "updated_at")) or modified,
        last_verified_at=_date("last_verified_at", _text(fields, "last_verified_at")),
    )
    only_ours = canonical_fields is not None and canonical_fields.keys() <= OWN
    return Parsed(fact, complete, "" if only_ours else foreign_lines(header))


def _read_canonical(header: str) -> Header | None:
    """The fields of a header in the form that `serialise` writes, else None. Agrees with YAML where it answers."""
    fields: Header = {}
    for line in header.removesuffix("\n").split("\n"):
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        key, value = found.groups()
        if value[0] in '"[':
            try:
                fields[key] = msgspec.json.decode(value, type=str | list[str])
            except msgspec.DecodeError:
                return None
        elif _PLAIN.fullmatch(value):
            fields[key] = value
        else:
            return None
    return fields


def _body(text: str) -> str:
    return _lines_ended(text).removeprefix("\n").removesuffix("\n")


def _lines_ended(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _must_agree(fields: Header, key: str, value: str, where: str) -> None:
    if fields.get(key) not in (None, "", value):
        raise InvalidFact(key, f"is not {value!r} as {where} says: put it back, or move the file")


def _text(fields: Header, key: str) -> str | None:
    value = fields.get(key)
    if isinstance(value, list):
        raise InvalidFact(key, "must be one text, not a list")
    return value


def _input_of(fields: Header, fact_id: str, scope: FactScope, body: str) -> FactInput:
    kind: Any = _text(fields, "type")
    if kind not in TYPES:
        raise InvalidFact("type", f"must be one of {', '.join(TYPES)}")
    return FactInput(
        name=_text(fields, "name") or fact_id,
        description=_text(fields, "description") or "",
        type=kind,
        body=body,
        title=_text(fields, "title") or "",
        scope=scope,
        keywords=frontmatter.texts(fields.get("keywords")),
        expires_at=_text(fields, "expires_at"),
    )


def _revision(fields: Header) -> int:
    text = _text(fields, "revision") or "1"
    if not (text.isascii() and text.isdigit() and int(text[:12]) >= 1 and len(text) <= 12):
        raise InvalidFact("revision", "must be a whole number from 1")
    return int(text)
