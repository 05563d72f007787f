"""What is taken for a secret and what is not. None of these is one."""

from __future__ import annotations

import pytest

from sidecar.memory.secrets import MAX_SCANNED_CHARS, find

MIXED = "a1B2c3D4e5F6g7H8i9J0" * 3


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("the key is AKIA" + "IOSFODNN7EXAMPLE", "key"),
        ("ghp_" + MIXED[:36], "key"),
        ("github_pat_" + MIXED[:30], "key"),
        ("glpat-" + MIXED[:20], "key"),
        ("xoxb-1234567890-" + MIXED[:10], "key"),
        ("sk-ant-api03-" + MIXED[:24], "key"),
        ("sk-proj-" + MIXED[:24], "key"),
        ("sk_live_" + MIXED[:20], "key"),
        ("AIza" + MIXED[:35], "key"),
        ("hf_" + MIXED[:30], "key"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + MIXED[:20], "key"),
        ("wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY9", "key"),
        ("aws secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "key"),
        ("use 0f8fad5bd9cb469fa16570867728950e", "key"),
        ("-----BEGIN OPENSSH PRIVATE " + "KEY-----", "private_key"),
        ("-----BEGIN PGP PRIVATE " + "KEY BLOCK-----", "private_key"),
        ("password = hunter2secret", "credential"),
        ("password: hunter", "credential"),
        ("The password is Tr0ub4dor&3", "credential"),
        ("the staging PIN is 4711", "credential"),
        ("密码是 hunter2", "credential"),
        ("密码：abc123", "credential"),
        ('DB_PASSWORD="abcd"', "credential"),
        ("AWS_SECRET_ACCESS_KEY=abcd/efgh", "credential"),
        ("PGPASSWORD=tiger psql", "credential"),
        ("pass: hunter2", "credential"),
        ("the password for staging is `tiger`", "credential"),
        ("The password of the test user is hunter2.", "credential"),
        ("Passwort: Tiger99", "credential"),
        ("mot de passe : tigre99", "credential"),
        ("curl -s -u admin:Sup3rSecret https://x.example", "credential"),
        ("token -> abcd1234", "credential"),
        ("postgres://app:s3cr3t@db:5432/x", "credential"),
        ("Authorization: Bearer abcdef1234567890", "credential"),
        ("pass\u200bword: hunter22", "credential"),
        ("ｐａｓｓｗｏｒｄ: hunter22", "credential"),
        ("write to bob@example.com", "email"),
        ("write to bob.smith+x@mail.example.co.uk.", "email"),
        ("写信给 zhang.san@公司.cn", "email"),
        ("bob [at] example [dot] com", "email"),
        ("write to bob.smith at example dot com", "email"),
    ],
)
def test_found(text: str, kind: str) -> None:
    assert kind in find(["a harmless name", text])


@pytest.mark.parametrize(
    "text",
    [
        "We use ruff, line length 120",
        "The password is stored in 1Password",
        "The password for staging is rotated weekly",
        "The password length of an account is 128",
        "The password column of the users table is varchar(255)",
        "The password hashing is argon2id",
        "The pin for the LED is D13",
        "first pass: parse, second pass: emit",
        "docker run --user 1000:1000 image",
        "Reports/MyProject/Module1/Services/ModelA",
        "Look at the dot product at scale",
        "Tokens are rotated weekly by the platform team",
        "commit 3e28d7ed64df5b2f5c4eb0f7a86e2f3b7d2d9a11 broke it",
        "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "id 550e8400-e29b-41d4-a716-446655440000",
        "resolve_compaction_policy_for_model decides",
        "ConcurrentHashMapSegmentV2Factory",
        "API keys live in Vault under kv/staging",
        "api_key: ${OPENAI_API_KEY}",
        "password: <your password>",
        "The token budget is 20,000",
        "max_tokens = see settings",
        "密码存放在 Vault 中",
        "数据库密码是保密的",
        "pytest -k test_recall --maxfail=1",
        "https://tracker.example.com/browse/PROJ-123",
        "clone git@github.com:org/repo.git",
        "@property, @types/node@20 and @alice",
        "the key to success is rest",
        "",
    ],
)
def test_not_found(text: str) -> None:
    assert find([text]) == ()


def test_fields_are_looked_at_together_but_do_not_run_into_each_other() -> None:
    assert find(["bob", "@example.com"]) == ()
    assert find(["x", "password: hunter2 and bob@example.com"]) == ("credential", "email")


def test_a_text_too_long_to_look_at_counts_as_sensitive() -> None:
    assert find(["a " * MAX_SCANNED_CHARS]) == ("credential",)
