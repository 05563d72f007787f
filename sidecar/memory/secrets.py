"""Finds what must not be written to memory unasked: credentials, keys, private keys, e-mail addresses. Pure.

Shapes of known issuers first, then assignments ("password: ..."), then strings that look random. It errs towards
finding: a false alarm costs one question, a miss puts a secret into files and prompts. Findings never hold the text.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

Finding = Literal["credential", "key", "private_key", "email"]

MAX_SCANNED_CHARS: Final = 20_000
"""A longer text is not scanned and counts as sensitive. All repetitions below are bounded, so that no text of this
length takes more than a few milliseconds a pattern."""

_PRIVATE_KEY = re.compile(
    r"""-----BEGIN[ ]?[A-Z0-9 ]*PRIVATE[ ]KEY | PuTTY-User-Key-File- | AGE-SECRET-KEY-1 | BEGIN[ ]SSH2[ ]ENCRYPTED
    | \b(?:xprv|yprv|zprv)[1-9A-HJ-NP-Za-km-z]{60,} """,
    re.VERBOSE,
)

_ISSUED: Final = (
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{12,}",  # Amazon access keys
    r"gh[pousr]_[A-Za-z0-9]{20,}",  # GitHub
    r"github_pat_\w{20,}",
    r"gl(?:pat|dt|rt|soat|cbt|ptt|ft|imt|agent)-[\w-]{16,}",  # GitLab
    r"xox[abeoprs]-[\w-]{10,}",  # Slack
    r"xapp-\d-[\w-]{10,}",
    r"hooks\.slack\.com/services/T\w+/B\w+/\w+",
    r"sk-(?:ant|proj|svcacct|admin|or|lf)?-?[\w-]{20,}",  # OpenAI, Anthropic and those that write theirs alike
    r"(?:sk|rk|pk)_(?:live|test)_\w{10,}",  # Stripe
    r"whsec_[\w+/=]{16,}",
    r"AIza[\w-]{30,}",  # Google
    r"ya29\.[\w-]{20,}",
    r"GOCSPX-[\w-]{16,}",
    r"SK[0-9a-f]{32}|AC[0-9a-f]{32}",  # Twilio
    r"SG\.[\w-]{16,}\.[\w-]{16,}",  # SendGrid
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-[\w-]{32,}",
    r"hf_[A-Za-z0-9]{20,}",
    r"do[opr]_v1_[a-f0-9]{40,}",  # DigitalOcean
    r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{24,}",  # Shopify
    r"dapi[a-f0-9]{32}",  # Databricks
    r"hv[sbr]\.[\w-]{20,}",  # Vault
    r"dp\.(?:pt|st|ct|sa|scim|audit)\.\w{30,}",  # Doppler
    r"lin_api_\w{30,}|ntn_\w{30,}|secret_\w{30,}",
    r"gsk_\w{30,}|xai-[\w-]{30,}|r8_\w{30,}|pplx-\w{30,}|fw_\w{20,}|nvapi-[\w-]{30,}|tvly-[\w-]{16,}",
    r"PMAK-[\w-]{30,}|NRAK-\w{20,}|dckr_pat_[\w-]{20,}|sq0(?:atp|csp)-[\w-]{20,}|EAAA\w{50,}",
    r"AccountKey=[\w+/=]{40,}",  # Azure storage
    r"\d{8,10}:AA[\w-]{30,}",  # Telegram
    r"[MNO][\w-]{23,40}\.[\w-]{6}\.[\w-]{27,}",  # Discord
    r"eyJ[\w-]{8,600}\.[\w-]{8,}\.",  # JSON web tokens
)
_KEY = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_ISSUED)})")

_URL_LOGIN = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{0,128}:(?P<value>[^\s/@]{1,256})@", re.IGNORECASE)
_HEADER = re.compile(r"\b(?:Bearer|Basic|Digest|Token)\s+(?P<value>[\w.~+/=-]{12,})", re.IGNORECASE)
_NAMES: Final = (
    r"[a-z0-9]{0,32}password|pass[\s_-]?(?:word|wd|phrase|code)|passwd|pwd|passwort|kennwort|mot[\s_-]de[\s_-]passe|"
    r"contrase[nñ]a|senha|пароль|pin(?:[\s_-]?code)?|(?:[a-z0-9]{1,32}[_-]){0,5}secrets?(?:[\s_-]?keys?)?|"
    r"(?:[a-z0-9]{1,32}[_-]){0,5}tokens?|(?:[a-z0-9]{1,32}[_-]){0,5}api[\s_-]?keys?|(?:access|auth|account|encryption|signing|license|"
    r"shared|master|private|client)[\s_-]?(?:keys?|secrets?)|credentials?|login|otp|2fa|connection[\s_-]?string|"
    r"密码|口令|密钥|秘钥|私钥|令牌|凭证|凭据|验证码|パスワード|秘密鍵|비밀번호"
)
_ASSIGNED = re.compile(
    rf"(?<![a-z0-9])(?:{_NAMES})[\"'`]?\s*(?:\([^)]*\)\s*)?(?P<how>[:=：＝]+>?|->|=>|\bis\b|\bare\b|是|为|為)\s*"
    r"(?P<value>\"[^\"\n]+\"|'[^'\n]+'|`[^`\n]+`|[^\s,;，。；、)]+)",
    re.IGNORECASE,
)
_SHORT_NAME = re.compile(
    r"(?<![a-z0-9_-])(?:pass|pw)\s*[:=]\s*(?P<value>(?=\S{0,64}\d)(?=\S{0,64}[a-z])\S{5,64})", re.IGNORECASE
)
_SENTENCE = re.compile(
    r"\b(?:password|passphrase|passcode)\s(?:for|of|to|on|in|at|from|with)\s[^\n.:=]{1,40}?\s(?:is|are)\s+"
    r"(?P<value>\"[^\"\n]+\"|'[^'\n]+'|`[^`\n]+`|[^\s,;，。；、)]+)",
    re.IGNORECASE,
)
"""`password for staging is ...`: other words stand between the name and its value. Without the preposition they name
another thing: the password column, the password hashing."""

_LOGIN_OPTION = re.compile(
    r"\b(?:curl|wget|https?)\b[^\n]{0,200}?\s(?:-u|--user)[\s=]+[\"']?[\w.@-]{1,64}:(?P<value>[^\s\"']{1,128})",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"""^(?: <.* | \$.* | %.*% | \{.* | \[.* | \*+ | x{3,} | \.{2,} | …+ | -+ | _+
    | (?:your|my|the|some|example|dummy|fake|test|changeme|redacted|placeholder)(?:[\W_].*)? )$""",
    re.IGNORECASE | re.VERBOSE,
)
_PROSE: Final = frozenset(
    """a an and are as at available based be been by changed configured counted created defined derived different
    disabled empty enabled encrypted expired expires false fetched found from generated given handled hashed here
    in injected is issued it kept limited listed loaded made managed mandatory missing needed never no none not null
    obtained of on one only optional or per provided read refreshed required reset rotated safe saved secret see set
    shared short sent signed stored string taken that the they this to true under undefined unknown unset used valid
    validated via we where with written you""".split()  # noqa: SIM905 - a list of words reads as words
)

_EMAIL = re.compile(
    r"(?<![\w.+-])(?!git@[\w.-]+[:/])[\w.!#$%&'*+/=?^`{|}~-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}", re.IGNORECASE
)
_EMAIL_SPELLED = re.compile(
    r"[\w.+-]\s{1,3}at\s{1,3}[\w-]{1,63}\s{1,3}dot\s{1,3}(?:com|org|net|edu|gov|info|io|dev|app|ai|co|cn|de|eu|fr|uk)\b|"
    r"[\w.+-]\s{0,3}[\[({<]\s{0,3}(?:at|@)\s{0,3}[\])}>]\s{0,3}[\w-]{1,63}"
    r"\s{0,3}(?:[\[({<]\s{0,3}(?:dot|\.)\s{0,3}[\])}>]|\.)\s{0,3}[a-z]{2,24}\b",
    re.IGNORECASE,
)

_WORD = re.compile(r"[A-Za-z0-9+=_~-]{20,}")
_HEX = re.compile(r"[0-9a-fA-F]{32,}")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_SLASHED = re.compile(r"(?<![\w/+=.-])[A-Za-z0-9/+]{40}(?![\w/+=.-])")
"""Of the length of Amazon's secret keys, whose alphabet holds `/` and `+`."""

_DIGEST_BEFORE = re.compile(
    r"(?:commit|sha-?\d*|hash|digest|md5|checksum|revision|rev|blob|tree|git|etag|提交|哈希)\W{0,3}$", re.IGNORECASE
)
_MIN_ENTROPY: Final = 3.7
"""Bits a character. Random text of 20 letters and digits has about 4.0, words run together 3.0 to 3.6."""

_INVISIBLE: Final = dict.fromkeys((*range(0x200B, 0x2010), 0x2060, 0xFEFF, 0x00AD, 0x180E))


def find(texts: Iterable[str]) -> tuple[Finding, ...]:
    """What kinds of sensitive text there are in any of `texts` or across them, sorted; empty for clean text."""
    joined = "\n".join(texts)
    if len(joined) > MAX_SCANNED_CHARS:
        return ("credential",)
    text = unicodedata.normalize("NFKC", joined).translate(_INVISIBLE)
    found: set[Finding] = set()
    if _PRIVATE_KEY.search(text):
        found.add("private_key")
    if _KEY.search(text) or _has_random(text):
        found.add("key")
    if _has_credential(text):
        found.add("credential")
    if _EMAIL.search(_URL_LOGIN.sub(" ", text)) or _EMAIL_SPELLED.search(text):
        found.add("email")
    return tuple(sorted(found))


def _has_credential(text: str) -> bool:
    for pattern in (_URL_LOGIN, _HEADER, _SHORT_NAME, _LOGIN_OPTION):
        if any(not _PLACEHOLDER.match(m["value"]) for m in pattern.finditer(text)):
            return True
    if any(_is_value(m["value"], "is") and not m["value"].isdigit() for m in _SENTENCE.finditer(text)):
        return True
    return any(_is_value(m["value"], m["how"]) for m in _ASSIGNED.finditer(text))


def _is_value(value: str, how: str) -> bool:
    quoted = value[0] in "\"'`"
    bare = value.strip("\"'`").rstrip(".!?")
    if len(bare) < 3 or _PLACEHOLDER.match(bare) or bare.casefold() in _PROSE:
        return False
    if quoted or any(c.isdigit() for c in bare):
        return True
    if how.casefold() in ("is", "are", "是", "为", "為"):
        return bool(re.search(r"[^\w\s-]", bare)) or (bare.lower() != bare and bare.capitalize() != bare)
    return bare.isascii()


def _has_random(text: str) -> bool:
    for found in _HEX.finditer(text):
        if not _DIGEST_BEFORE.search(text[max(0, found.start() - 16) : found.start()]) and _is_mixed_hex(found.group()):
            return True
    if any(_is_random_slashed(m.group()) for m in _SLASHED.finditer(text)):
        return True
    without = _UUID.sub(" ", text)
    return any(_is_random(m.group()) for m in _WORD.finditer(without) if not _HEX.fullmatch(m.group()))


def _is_mixed_hex(word: str) -> bool:
    return any(c.isdigit() for c in word) and any(c.isalpha() for c in word) and entropy(word.lower()) > 2.5


def _is_random(word: str) -> bool:
    kinds = sum((any(c.isdigit() for c in word), any(c.islower() for c in word), any(c.isupper() for c in word)))
    digits = sum(c.isdigit() for c in word)
    longest = max(map(len, re.split(r"[-_=+~]", word)))
    return kinds == 3 and digits >= 2 and longest >= 16 and entropy(word) >= _MIN_ENTROPY


def _is_random_slashed(word: str) -> bool:
    """Paths of that length have few capitals."""
    counts = (sum(c.isupper() for c in word), sum(c.islower() for c in word))
    return min(counts) >= 8 and any(c.isdigit() for c in word) and entropy(word) >= _MIN_ENTROPY


def entropy(text: str) -> float:
    """Shannon entropy of the text's characters, in bits a character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
