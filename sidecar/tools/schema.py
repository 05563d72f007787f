"""Checks a call's arguments against its tool's JSON Schema, in words that help a model to correct itself.

Most schemas are objects of plain values: those are checked here. For all others `jsonschema` is loaded, in a thread,
when the first of them is met. A schema that is no schema never breaks a call: it then checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import orjson
from anyio import to_thread

from protocol.messages import JsonObject, ToolSpec
from sidecar.tools import plain_schema
from sidecar.tools.plain_schema import Problem
from sidecar.tools.text import clip

MAX_PROBLEMS = 5

Check = Callable[[JsonObject], Sequence[Problem]]


async def mismatch(spec: ToolSpec, arguments: JsonObject) -> str | None:
    """What is wrong with the arguments, for the model; None if they fit."""
    check = await _checker(spec.parameters)
    problems = check(arguments) if check is not None else ()
    return _explain(spec, problems) if problems else None


async def defect(schema: JsonObject) -> str | None:
    """Why a schema cannot be used to check arguments, for the host that gave it; None if it can."""
    if plain_schema.is_plain(schema):
        return None
    key = _key(schema)
    return "it is not JSON" if key is None else await to_thread.run_sync(_full_defect, key)


async def _checker(schema: JsonObject) -> Check | None:
    key = _key(schema)
    if key is None:
        return None
    if _plain(key):
        return lambda arguments: list(plain_schema.problems(schema, arguments))
    return await to_thread.run_sync(_full, key)


def _key(schema: JsonObject) -> bytes | None:
    try:
        return orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):
        return None


@lru_cache(maxsize=1024)
def _plain(key: bytes) -> bool:
    return plain_schema.is_plain(orjson.loads(key))


@lru_cache(maxsize=1024)
def _full_defect(key: bytes) -> str | None:
    from jsonschema.validators import Draft202012Validator, validator_for

    schema = orjson.loads(key)
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except Exception as error:  # schemas come from outside, and this library raises what their parts raise
        return clip(str(getattr(error, "message", error)), 300)
    return None


@lru_cache(maxsize=1024)
def _full(key: bytes) -> Check | None:
    """`jsonschema`'s check of this schema, or None if it is no schema. References that leave the schema are not
    fetched."""
    from jsonschema.validators import Draft202012Validator, extend, validator_for
    from referencing import Registry

    if _full_defect(key) is not None:
        return None
    schema = orjson.loads(key)
    kind = extend(validator_for(schema, default=Draft202012Validator), {"pattern": _pattern})
    validator = kind(schema, registry=Registry())

    def check(arguments: JsonObject) -> Sequence[Problem]:
        try:
            return [_problem(e) for e, _ in zip(validator.iter_errors(arguments), range(MAX_PROBLEMS), strict=False)]
        except Exception:  # an unresolvable reference, endless recursion: the schema's fault, not the call's
            return ()

    return check


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    """The keyword `pattern`, with a time limit."""
    from jsonschema.exceptions import ValidationError

    from sidecar.tools.patterns import TooSlow, searcher

    if not isinstance(instance, str):
        return
    try:
        found = searcher(pattern)(instance)
    except TooSlow:
        return
    if found is None:
        yield ValidationError(f"must match the pattern {pattern}")


def _problem(error: Any) -> Problem:
    from jsonschema.exceptions import best_match

    if error.context:
        error = best_match([error]) or error
    path = tuple(error.absolute_path)
    known = plain_schema.problem_of(error.validator, error.validator_value, error.instance, error.schema)
    for problem in known:
        return Problem((*path, *problem.path), problem.text)
    return Problem(path, clip(error.message, 300))


def _explain(spec: ToolSpec, problems: Sequence[Problem]) -> str:
    lines = [f"The arguments of `{spec.name}` do not fit its parameters:"]
    lines += [f"- {_line(p)}" for p in problems[:MAX_PROBLEMS]]
    names = spec.parameters.get("properties")
    if isinstance(names, dict) and names:
        required = spec.parameters.get("required")
        must = [n for n in names if isinstance(required, list) and n in required]
        may = [n for n in names if n not in must]
        listed = [*(f"{n} (required)" for n in must), *may]
        lines.append(f"Parameters: {clip(', '.join(listed), 500)}.")
    lines.append("Nothing was run. Make the call again with arguments that fit.")
    return "\n".join(lines)


def _line(problem: Problem) -> str:
    path = ""
    for part in problem.path:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return f"`{path}`: {problem.text}" if path else problem.text
