"""What the policy says about a call. Pure.

A rule is `tool` or `tool(glob over its main argument)`; `tool` may itself be a glob (`mcp__github__*`).

- Paths are matched as resolved, absolute paths; a relative glob starts at the working directory. In an allow rule the
  glob must match the whole path. A deny rule covers what lies below what it matches too, and one without `/` matches
  a name in any directory.
- Other arguments are matched as text. In an allow rule `*` and `?` never stand for what makes a shell run or redirect
  something else (`;`, `&`, `|`, `<`, `>`, backquotes, `$(`, line ends), so `git *` does not let `git x; rm y` through;
  sending output to /dev/null or `2>&1` is let through. A deny rule is tried on every piece of a compound command.

What cannot be told counts against the call: a deny rule with a glob also covers a call whose main argument is unknown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fnmatch import translate as name_pattern
from typing import Literal

from sidecar.errors import Fault
from sidecar.settings import ApprovalSettings
from sidecar.tools.globs import BadGlob, literal_prefix, matcher

Mode = Literal["ask", "auto_edit", "auto", "deny"]

_RULE = re.compile(r"([\w.*?\[\]!-]+)(?:\((.+)\))?", re.ASCII | re.DOTALL)
_HARMLESS = re.compile(r"\s*(?:(?:[12]|&)?>>?\s*/dev/null|2>&1|<\s*/dev/null)(?=[\s]|$)")
_PIECES = re.compile(r"[;&|\n\r(){}`<>]|\$\(")
_IN_FRONT = re.compile(
    r"(?:\w+=\S*\s+|(?:sudo|env|nohup|time|command|exec|builtin|nice|xargs|then|do|else|!)\s+(?:-\S+\s+)*)+"
)
_ANYWHERE = "/**/" if os.sep == "/" else "**/"
_ANY_SAFE = r"(?:(?!\$\()[^;&|<>`\n\r])"


@dataclass(frozen=True, slots=True)
class Rule:
    """`argument` None: the rule is for every call of the tool. `paths` are the glob as absolute patterns: as written,
    and with its fixed directories resolved."""

    text: str
    tool: re.Pattern[str]
    argument: str | None
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    mode: Mode = "ask"
    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    host_tools: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A call as rules see it. `argument` is the text of its main argument, or its resolved absolute path with `/` where
    `is_path`; None if it has none or it could not be resolved. `others` are all texts among its arguments."""

    name: str
    argument: str | None = None
    is_path: bool = False
    others: tuple[str, ...] = ()
    side_effects: bool = True
    is_edit: bool = False
    is_host: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by` is who decided, as the record says it: None for calls that need no decision. `reason` is for people and the
    model."""

    decision: Literal["allow", "deny", "ask"]
    by: Literal["policy", "session_grant"] | None
    reason: str


def policy_of(settings: ApprovalSettings, cwd: str, resolve: Callable[[str], str] = os.path.realpath) -> Policy:
    """The policy that settings stand for in a session that works in `cwd` (absolute, resolved). Raises
    `config_invalid` for a rule that cannot be read."""
    return Policy(
        settings.mode,
        tuple(_parse(text, "allow", cwd, resolve) for text in settings.allow),
        tuple(_parse(text, "deny", cwd, resolve) for text in settings.deny),
        settings.host_tools,
    )


def _parse(text: str, key: str, cwd: str, resolve: Callable[[str], str]) -> Rule:
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise _bad(text, key, "it is neither `tool` nor `tool(glob)`")
    glob = match.group(2)
    try:
        paths = () if glob is None else _path_patterns(glob, key, cwd, resolve)
    except (BadGlob, re.error) as error:
        raise _bad(text, key, str(error)) from None
    return Rule(text, re.compile(name_pattern(match.group(1))), glob, paths)


def _bad(text: str, key: str, why: str) -> Fault:
    return Fault(
        "config_invalid",
        f"approval.{key} holds {text!r}, which is no rule: {why}",
        hint="write `tool` or `tool(glob over its main argument)`, e.g. run_command(git *)",
        key=f"approval.{key}",
        value=text,
    )


def _path_patterns(glob: str, key: str, cwd: str, resolve: Callable[[str], str]) -> tuple[str, ...]:
    if key == "deny" and "/" not in glob:
        return (_checked(_ANYWHERE + glob),)
    base = os.path.expanduser(glob)
    folder, rest = literal_prefix(base if os.path.isabs(base) else f"{cwd.replace(os.sep, '/')}/{base}")
    plain = os.path.normpath(folder).replace(os.sep, "/")
    forms = dict.fromkeys(f"{form.rstrip('/')}/{rest}" for form in (plain, resolve(folder).replace(os.sep, "/")))
    return tuple(_checked(form) for form in forms)


def _checked(pattern: str) -> str:
    matcher(pattern)
    return pattern


# ---------------------------------------------------------------- deciding


def decide(subject: Subject, policy: Policy, grants: Collection[str]) -> Verdict:
    """Deny rules win, then allow rules, then the mode; a grant of this session stands for the answer to a question."""
    for rule in policy.deny:
        if _denies(rule, subject):
            return Verdict("deny", "policy", f"approval.deny refuses it ({rule.text})")
    if not subject.side_effects or (subject.is_host and not policy.host_tools):
        return Verdict("allow", None, "no approval needed")
    for rule in policy.allow:
        if _allows(rule, subject):
            return Verdict("allow", "policy", f"approval.allow ({rule.text})")
    match policy.mode:
        case "deny":
            return Verdict("deny", "policy", "approval.mode is deny")
        case "auto":
            return Verdict("allow", "policy", "approval.mode is auto")
        case "auto_edit" if subject.is_edit:
            return Verdict("allow", "policy", "approval.mode is auto_edit")
    if subject.name in grants:
        return Verdict("allow", "session_grant", "allowed for this session")
    return Verdict("ask", None, "")


def _allows(rule: Rule, subject: Subject) -> bool:
    if rule.tool.fullmatch(subject.name) is None:
        return False
    if rule.argument is None:
        return True
    if subject.argument is None:
        return False
    if subject.is_path:
        return any(matcher(pattern).fullmatch(subject.argument) is not None for pattern in rule.paths)
    command = _HARMLESS.sub("", subject.argument).strip()
    return _text_pattern(rule.argument, _ANY_SAFE).fullmatch(command) is not None


def _denies(rule: Rule, subject: Subject) -> bool:
    if rule.tool.fullmatch(subject.name) is None:
        return False
    if rule.argument is None:
        return True
    if subject.is_path:
        return subject.argument is None or any(_covers(pattern, subject.argument) for pattern in rule.paths)
    pattern = _text_pattern(rule.argument, ".")
    texts = subject.others if subject.argument is None else (subject.argument,)
    if not texts:
        return True
    return any(pattern.fullmatch(piece) is not None for text in texts for piece in pieces(text))


def _covers(pattern: str, path: str) -> bool:
    expression = matcher(pattern, fold_case=True)
    while path.strip("/"):
        if expression.fullmatch(path) is not None:
            return True
        path = path.rpartition("/")[0]
    return False


def _text_pattern(glob: str, any_one: str) -> re.Pattern[str]:
    """`*` is any run, `?` one of what `any_one` matches; everything else is itself. Takes linear time for each star:
    what stands between two stars is found at its first place, and not looked for again."""
    fixed = ["".join(any_one if c == "?" else re.escape(c) for c in part) for part in re.split(r"\*+", glob.strip())]
    if len(fixed) == 1:
        return re.compile(fixed[0], re.DOTALL)
    middle = "".join(f"(?>{any_one}*?{part})" for part in fixed[1:-1])
    return re.compile(f"{fixed[0]}{middle}{any_one}*{fixed[-1]}", re.DOTALL)


def pieces(command: str) -> Iterator[str]:
    """The command, its simple commands, and these without what stands in front of them (assignments, `sudo`, the
    program's directory). A guess that errs to more pieces; quoting is not looked at."""
    yield command.strip()
    for part in _PIECES.split(command):
        piece = part.strip()
        if not piece:
            continue
        yield piece
        bare = _IN_FRONT.sub("", piece, count=1) if _IN_FRONT.match(piece) else piece
        yield bare
        program, space, rest = bare.partition(" ")
        yield program.rpartition("/")[2] + space + rest
