"""Which model is asked, where, and with what: configuration, keys, quirks, lists of models, scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol import events as e
from protocol.errors import CODES
from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Reply, call, failure, sequence
from tests.support.one_daemon import OneDaemon
from tests.support.running import a_place, running_sidecar, until

pytestmark = pytest.mark.anyio


def refused(caught: pytest.ExceptionInfo[SidecarError], reason: str) -> dict[str, Any]:
    error = caught.value
    assert error.reason == reason
    assert error.code == CODES[reason]
    return {"hint": error.hint, **dict(error.data or {})}


# ---------------------------------------------------------------- which provider


async def test_a_provider_of_ones_own() -> None:
    """From the file: dialect, address, the variable of the key, further headers; the model's window from the table."""
    with FakeLLM(lambda r, n: Reply("mine")) as llm:
        config = f"""
            [model]
            name = "acme/some/model:1"
            [providers.acme]
            dialect = "openai"
            base_url = "{llm.openai_url}"
            api_key_env = "ACME_SECRET"
            headers = {{ "X-Team" = "red", "User-Agent" = "us/1" }}
            [providers.claudish]
            dialect = "anthropic"
            base_url = "{llm.origin}/gateway/v1"
            api_key_env = "ACME_SECRET"
            [models."acme/some/model:1"]
            window = 77000
            max_output = 1234
        """
        env = {"ACME_SECRET": "top-secret-of-acme-123"}
        async with running_sidecar(env=env, config=config) as sidecar:
            client = sidecar.client
            session = await client.sessions.create(cwd=str(sidecar.work))
            assert (session.model, session.window) == ("acme/some/model:1", 77_000)
            assert (await client.chat.run(session.session_id, "hello")).text == "mine"
            (request,) = llm.requests
            assert request.path == "/v1/chat/completions"
            assert request.headers["authorization"] == "Bearer top-secret-of-acme-123"
            assert (request.headers["x-team"], request.headers["user-agent"]) == ("red", "us/1")
            assert (request.json["model"], request.json["max_tokens"]) == ("some/model:1", 1234)
            info = await client.context.get(session.session_id)
            assert (info.window, info.window_source) == (77_000, "table")
            other = await client.sessions.create(cwd=str(sidecar.work), model="claudish/c")
            assert (await client.chat.run(other.session_id, "hello")).text == "mine"
            assert llm.requests[-1].path == "/gateway/v1/messages"
            assert llm.requests[-1].headers["x-api-key"] == "top-secret-of-acme-123"
            assert llm.requests[-1].headers["anthropic-version"]
            assert "authorization" not in llm.requests[-1].headers
            for path in sidecar.home.rglob("*"):
                assert not path.is_file() or b"top-secret-of-acme" not in path.read_bytes()
            assert "top-secret-of-acme" not in sidecar.stderr()


@pytest.mark.parametrize(
    "model", ["nobody/x", "openai", "openai/", "/x", "scripted/nothing-here.jsonl"], ids=lambda m: m.replace("/", "_")
)
async def test_what_cannot_be_served_fails_create(daemon: OneDaemon, model: str) -> None:
    async with daemon.client() as client:
        with pytest.raises(SidecarError) as caught:
            await client.sessions.create(cwd=str(daemon.place.work), model=model)
        assert refused(caught, "no_provider")["hint"]
        assert all(s.model != model for s in (await client.sessions.list()).sessions)


async def test_without_a_key_or_configuration() -> None:
    """create answers, chat.send says what to set; a named model fails create."""
    async with running_sidecar() as sidecar:
        client = sidecar.client
        session = await client.sessions.create(cwd=str(sidecar.work))
        with pytest.raises(SidecarError) as caught:
            await client.chat.send(session.session_id, "hello")
        hint = str(refused(caught, "no_provider")["hint"])
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SIDECAR_MODEL"):
            assert name in hint
        for model, name in (("openai/gpt-5", "OPENAI_API_KEY"), ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY")):
            with pytest.raises(SidecarError) as caught:
                await client.sessions.create(cwd=str(sidecar.work), model=model)
            data = refused(caught, "no_provider")
            assert name in str(data["hint"]) + caught.value.message
        assert (await client.sessions.create(cwd=str(sidecar.work), model="scripted/echo")).model == "scripted/echo"


async def test_a_named_key_that_is_not_set(daemon: OneDaemon) -> None:
    config = {"providers": {"acme": {"base_url": "https://llm.invalid/v1", "api_key_env": "NOT_SET_ANYWHERE"}}}
    async with daemon.client() as client:
        with pytest.raises(SidecarError) as caught:
            await client.sessions.create(cwd=str(daemon.place.work), model="acme/x", config=config)
        assert "NOT_SET_ANYWHERE" in str(refused(caught, "no_provider")["hint"]) + caught.value.message


@pytest.mark.parametrize(
    "address", ["nonsense", "ftp://x/v1", "http://", "http://[bad", "http://host:99999", "file:///x"]
)
async def test_an_address_that_is_none(daemon: OneDaemon, address: str) -> None:
    config = {"providers": {"openai": {"base_url": address}}}
    async with daemon.client() as client:
        with pytest.raises(SidecarError) as caught:
            await client.sessions.create(cwd=str(daemon.place.work), model="openai/x", config=config)
        assert "base_url" in str(refused(caught, "no_provider")["hint"])


@pytest.mark.parametrize("variable", ["ALL_PROXY", "SSL_CERT_FILE"])
async def test_an_environment_that_cannot_be_used_ends_a_turn_and_nothing_else(variable: str) -> None:
    """The list of models is asked for in the background: that question must not end the daemon either."""
    value = {"ALL_PROXY": "socks4://127.0.0.1:9", "SSL_CERT_FILE": "/nowhere/at/all.pem"}[variable]
    async with running_sidecar(env={"OPENAI_API_KEY": "sk-of-this-test-123456", variable: value}) as sidecar:
        config = {"providers": {"openai": {"base_url": "https://model.invalid/v1"}}}
        session = await sidecar.client.sessions.create(cwd=str(sidecar.work), model="openai/m", config=config)
        for _ in range(2):
            result = await sidecar.client.chat.run(session.session_id, "hello")
            assert result.error is not None
            assert (result.error.reason, variable in result.error.message) == ("provider_rejected", True)
        echo = await sidecar.client.sessions.create(cwd=str(sidecar.work), model="scripted/echo")
        assert (await sidecar.client.chat.run(echo.session_id, "still here")).text == "still here"
        assert "Traceback" not in sidecar.stderr()


async def test_values_per_session(daemon: OneDaemon) -> None:
    """Another address, other headers, for one session only."""
    with FakeLLM(lambda r, n: Reply("elsewhere")) as llm:
        config = {"providers": {"openai": {"base_url": llm.openai_url, "headers": {"X-Only": "here"}}}}
        async with (
            daemon.talk("openai", sequence(Reply("usual")), config=config) as there,
            daemon.talk("openai", sequence(Reply("usual"))) as here,
        ):
            assert (await there.run("hello")).text == "elsewhere"
            assert (await here.run("hello")).text == "usual"
            assert llm.requests[0].headers["x-only"] == "here"
            assert "x-only" not in here.requests[0].headers
            # And changed while the session lives.
            await here.client.sessions.configure(
                here.session_id, config={"providers": {"openai": {"headers": {"X-New": "1"}}}}
            )
            await here.run("again")
            assert here.requests[1].headers["x-new"] == "1"


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"providers": {"openai": {"idle_timeout_s": 0}}}, "providers.openai.idle_timeout_s", "0"),
    ({"providers": {"openai": {"max_retries": -1}}}, "providers.openai.max_retries", "-1"),
    ({"providers": {"openai": {"connect_timeout_s": "soon"}}}, "providers.openai.connect_timeout_s", "soon"),
    ({"providers": {"openai": {"dialect": "klingon"}}}, "providers.openai.dialect", "klingon"),
    ({"providers": {"openai": {"nonsense": 1}}}, "providers.openai.nonsense", ""),
    ({"providers": {"openai": {"retry_base_s": -0.5}}}, "providers.openai.retry_base_s", "-0.5"),
    ({"models": {"openai/x": {"window": 5}}}, "models.openai/x.window", "5"),
    ({"model": {"window": "large"}}, "model.window", "large"),
    ({"model": {"max_output": 0}}, "model.max_output", "0"),
    ({"providers": {"openai": {"quirks": {"no_such_quirk": True}}}}, "quirks.no_such_quirk", ""),
    ({"providers": {"openai": {"quirks": {"max_tokens_field": "tokens"}}}}, "quirks.max_tokens_field", "tokens"),
    ({"providers": {"openai": {"headers": {"X-Fine": "a", "X-Bad": 5}}}}, "providers.openai.headers.X-Bad", ""),
    ({"providers": {"openai": {"quirks": {"extra_body": {"messages": []}}}}}, "extra_body.messages", ""),
    ({"providers": {"openai": {"headers": {"X-Bad": "a\nb"}}}}, "providers.openai.headers", ""),
]  # fmt: skip


@pytest.mark.parametrize(("config", "key", "value"), WRONG, ids=[k for _, k, _ in WRONG])
async def test_wrong_values_are_named(daemon: OneDaemon, config: dict[str, Any], key: str, value: str) -> None:
    """At create and at configure; nothing half-applies."""
    async with daemon.talk("openai", sequence(Reply("ok"))) as talk:
        with pytest.raises(SidecarError) as caught:
            await talk.client.sessions.create(cwd=str(daemon.place.work), model=f"openai/{talk.model}", config=config)
        refused(caught, "config_invalid")
        assert key.rpartition(".")[2] in caught.value.message
        assert value in caught.value.message
        before = len(talk.records)
        with pytest.raises(SidecarError) as caught:
            await talk.client.sessions.configure(talk.session_id, config={**config, "compaction": {"soft_ratio": 0.3}})
        refused(caught, "config_invalid")
        assert len(talk.records) == before
        assert (await talk.run("hello")).text == "ok"


async def test_wrong_quirks_of_the_process(daemon: OneDaemon) -> None:
    """`config.set` refuses them and changes nothing; so does a daemon that is to start with them."""
    async with daemon.client() as client:
        with pytest.raises(SidecarError) as caught:
            await client.config.set({"providers.openai.quirks": {"no_such_quirk": 1}, "compaction.soft_ratio": 0.1})
        assert "no_such_quirk" in str(refused(caught, "config_invalid")["key"])
        assert (await client.config.get("compaction.soft_ratio")).value is None
    wrong = "[providers.openai.quirks]\nno_such_quirk = 1\n"
    with a_place(config=wrong) as place:
        done = await anyio.run_process(place.command("serve", "--stdio"), env=place.env, check=False, input=b"")
        assert done.returncode != 0
        assert b"no_such_quirk" in done.stdout + done.stderr


async def test_a_wrong_row_of_the_process_tells_no_credential() -> None:
    wrong = '[providers.a]\nheaders = { Authorization = "Bearer my-own-secret-777", X-Count = 5 }\n'
    with a_place(config=wrong) as place:
        done = await anyio.run_process(place.command("serve", "--stdio"), env=place.env, check=False, input=b"")
        assert done.returncode != 0
        assert b"providers.a.headers.X-Count" in done.stderr
        assert b"my-own-secret" not in done.stdout + done.stderr


CARRIED: list[dict[str, Any]] = [
    {"headers": {"Authorization": "Bearer my-own-secret-777"}},
    {"headers": {"X-Api-Key": "my-own-secret-777"}},
    {"base_url": "https://user:my-own-secret-777@llm.invalid/v1"},
    {"base_url": "https://llm.invalid/v1?api_key=my-own-secret-777"},
    {"quirks": {"extra_body": {"max_tokens": 5, "vendor": {"access_token": "my-own-secret-777"}}}},
    {"headers": {"X-Fine": "my-own-secret-777", "X-Count": 5}},
]


@pytest.mark.parametrize("row", CARRIED, ids=["bearer", "key", "address", "query", "body", "beside what is wrong"])
async def test_a_session_carries_no_credentials(daemon: OneDaemon, row: dict[str, Any]) -> None:
    """Its configuration is in its log; the refusal says what to do, and repeats nothing secret."""
    async with daemon.talk("openai", sequence(Reply("ok"))) as talk:
        config = {"providers": {"openai": row}}
        with pytest.raises(SidecarError) as caught:
            await talk.client.sessions.configure(talk.session_id, config=config)
        wanted = "set providers.openai.headers.X-Count" if "X-Count" in row.get("headers", {}) else "api_key_env"
        assert wanted in str(refused(caught, "config_invalid")["hint"])
        with pytest.raises(SidecarError):
            await talk.client.sessions.create(cwd=str(daemon.place.work), config=config)
        assert "my-own-secret" not in str(caught.value) + str(caught.value.data)
    for path in [*daemon.place.home.rglob("*"), daemon.place.stderr_file]:
        assert not path.is_file() or b"my-own-secret" not in path.read_bytes()


# ---------------------------------------------------------------- quirks


async def test_quirks_change_the_request(daemon: OneDaemon) -> None:
    quirks = {
        "stream_options": False, "max_tokens_field": "max_completion_tokens", "system_role": "developer",
        "parallel_tool_calls": False, "auth": "api-key", "extra_body": {"temperature": 0.5, "x_vendor": {"a": [1]}},
    }  # fmt: skip
    config = {"providers": {"openai": {"quirks": quirks}}, "model": {"max_output": 500}}

    @host_tool("act", "Acts.", {})
    async def act(call: HostCall) -> str:
        return "done"

    async with daemon.talk("openai", sequence(Reply("ok")), config=config, tools=[act], system_prompt="Be.") as talk:
        await talk.run("hello")
        asked = talk.requests[0]
        assert "stream_options" not in asked.json
        assert (asked.json["max_completion_tokens"], "max_tokens" in asked.json) == (500, False)
        assert asked.messages[0]["role"] == "developer"
        assert asked.json["parallel_tool_calls"] is False
        assert (asked.json["temperature"], asked.json["x_vendor"]) == (0.5, {"a": [1]})
        assert "authorization" not in asked.headers
        assert asked.headers["api-key"] == daemon.place.env["OPENAI_API_KEY"]


async def test_the_standard_sends_nothing_else(daemon: OneDaemon) -> None:
    async with daemon.talk("openai", sequence(Reply("ok"))) as talk:
        await talk.run("hello")
        assert set(talk.requests[0].json) == {"model", "stream", "stream_options", "messages"}
    async with daemon.talk("anthropic", sequence(Reply("ok"))) as talk:
        await talk.run("hello")
        assert set(talk.requests[0].json) <= {"model", "stream", "max_tokens", "messages", "system"}


async def test_marks_can_be_switched_off(daemon: OneDaemon) -> None:
    config = {"providers": {"anthropic": {"quirks": {"cache_control": False, "auth": "bearer"}}}}
    async with daemon.talk("anthropic", sequence(Reply("ok")), config=config, system_prompt="s") as talk:
        await talk.run("hello")
        assert b"cache_control" not in talk.requests[0].body
        assert talk.requests[0].headers["authorization"].startswith("Bearer ")


# ---------------------------------------------------------------- lists of models


async def test_the_list_of_models() -> None:
    rows = [{"id": "fake-model"}, {"id": "long", "context_length": 200_000}, {"id": "vllm", "max_model_len": 9_000}]
    config = '[models."openai/mine"]\nwindow = 5000\nmax_output = 700\n'
    with FakeLLM(models=rows) as llm:
        async with running_sidecar(llm=llm, config=config) as sidecar:
            listed = await sidecar.client.models.list()
            by_name = {m.name: m for m in listed}
            assert {"openai/fake-model", "openai/long", "openai/vllm", "openai/mine", "scripted/echo"} <= set(by_name)
            assert (by_name["openai/long"].window, by_name["openai/long"].source) == (200_000, "provider")
            assert (by_name["openai/vllm"].window, by_name["openai/vllm"].source) == (9_000, "provider")
            assert (by_name["openai/fake-model"].window, by_name["openai/fake-model"].source) == (32_768, "fallback")
            mine = by_name["openai/mine"]
            assert (mine.provider, mine.window, mine.max_output, mine.source) == ("openai", 5_000, 700, "table")
            assert all(m.name.startswith(f"{m.provider}/") for m in listed)
            assert [m.name for m in listed] == sorted(by_name)


async def test_the_list_without_any_provider() -> None:
    async with running_sidecar() as sidecar:
        listed = await sidecar.client.models.list()
        assert [m.name for m in listed] == ["scripted/echo"]


# ---------------------------------------------------------------- scripts


async def test_echo(daemon: OneDaemon) -> None:
    async with daemon.client() as client:
        session = await client.sessions.create(cwd=str(daemon.place.work), model="scripted/echo")
        assert (await client.chat.run(session.session_id, "say this ü")).text == "say this ü"
        assert (await client.chat.run(session.session_id, "and this")).text == "and this"


async def test_a_script_file(daemon: OneDaemon, tmp_path: Path) -> None:
    """Replies in order, the last one again and again; calls, usage, reasoning, errors with retries."""
    lines: list[dict[str, Any]] = [
        {"text": "calling", "reasoning": "hm", "tool_calls": [{"name": "act", "arguments": {"n": 1}}],
         "usage": {"prompt_tokens": 900, "completion_tokens": 30}},
        {"error": {"status": 503, "body": {"error": {"message": "later"}}}},
        {"text": "done", "usage": {"prompt_tokens": 1000, "completion_tokens": 10}, "delay_ms": 5},
        {"error": {"status": 400, "body": {"error": {"message": "never"}}}},
        {"text": "the last"},
    ]  # fmt: skip
    path = tmp_path / "my script.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    ran: list[Any] = []

    @host_tool("act", "Acts.", {"n": {"type": "integer"}})
    async def act(call: HostCall) -> str:
        ran.append(call.arguments)
        return "acted"

    config = {"providers": {"scripted": {"retry_base_s": 0.01}}}
    async with daemon.client() as client:
        session = await client.sessions.create(
            cwd=str(daemon.place.work), model=f"scripted/{path}", tools=[act], config=config
        )
        events: list[Any] = []
        with client.events(session.session_id) as stream:
            sent = await client.chat.send(session.session_id, "go")
            async for told in stream.of_turn(sent.turn_id):
                events.append(told.event)
        assert (events[-1].text, events[-1].stop_reason) == ("done", "end_turn")
        assert ran == [{"n": 1}]
        assert [x.status for x in events if isinstance(x, e.RetryScheduled)] == [503]
        assert (events[-1].usage.prompt_tokens, events[-1].usage.completion_tokens) == (1900, 40)
        assert (await client.context.get(session.session_id)).used == 1010
        failed = await client.chat.run(session.session_id, "again")
        assert failed.error is not None
        assert failed.error.provider_status == 400
        for _ in range(3):
            assert (await client.chat.run(session.session_id, "more")).text == "the last"


async def test_a_relative_script_is_found_from_the_daemons_folder(daemon: OneDaemon) -> None:
    (daemon.place.work / "rel.jsonl").write_text('{"text":"relative"}\n')
    async with daemon.client() as client:
        session = await client.sessions.create(cwd=str(daemon.place.work), model="scripted/rel.jsonl")
        assert (await client.chat.run(session.session_id, "x")).text == "relative"


# ---------------------------------------------------------------- lists and keys in logs


async def test_nothing_secret_is_logged_when_much_goes_wrong() -> None:
    """The log at its most talkative, with every kind of failure."""
    key = "sk-proj-veryverysecret0123456789"
    replies = [failure(s, f"oh no {key}") for s in (500, 429, 400, 401)]
    with FakeLLM(sequence(*replies)) as llm:
        env = {"OPENAI_API_KEY": key}
        arguments = ("serve", "--stdio", "--log-level", "debug")
        async with running_sidecar(llm=llm, env=env, arguments=arguments) as sidecar:
            session = await sidecar.client.sessions.create(
                cwd=str(sidecar.work), config={"providers": {"openai": {"retry_base_s": 0.01}}}
            )
            for _ in range(3):
                await sidecar.client.chat.run(session.session_id, "hello")
            await until(lambda: llm.count >= 4, what="requests")
            told = await sidecar.client.records.query(session.session_id)
            assert key not in str(told)
            assert all(r.headers["authorization"] == f"Bearer {key}" for r in llm.requests)
            await until(lambda: sidecar.stderr().count("/chat/completions") >= 4, what="the log")
            for path in sidecar.home.rglob("*"):
                assert not path.is_file() or key.encode() not in path.read_bytes(), path
            assert key not in sidecar.stderr()
            assert "authorization: bearer" not in sidecar.stderr().lower()


async def test_what_an_address_or_a_header_carries_is_not_logged() -> None:
    secrets = ("password-0011", "query-key-0022", "header-key-0033")
    with FakeLLM(lambda r, n: failure(400, "no")) as llm:
        config = f"""
            [providers.acme]
            base_url = "{llm.openai_url.replace("http://", "http://me:password-0011@")}?api_key=query-key-0022"
            headers = {{ "X-Api-Key" = "header-key-0033" }}
            retry_base_s = 0.01
        """
        arguments = ("serve", "--stdio", "--log-level", "debug")
        async with running_sidecar(config=config, arguments=arguments) as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), model="acme/m")
            await sidecar.client.chat.run(session.session_id, "hello")
            assert "query-key-0022" in llm.requests[0].path
            await until(lambda: "/chat/completions" in sidecar.stderr(), what="the log")
            for path in [*sidecar.home.rglob("*"), sidecar.stderr_file]:
                if path.is_file():
                    assert not [s for s in secrets if s in path.read_text(errors="replace")], path


async def test_a_call_without_a_name_or_tool(daemon: OneDaemon) -> None:
    script = sequence(Reply("", tool_calls=[call("", {})]), Reply("", tool_calls=[call("nosuch", {})]), Reply("fine"))
    async with daemon.talk("openai", script) as talk:
        assert (await talk.run("go")).text == "fine"
        assert [x.is_error for x in talk.of_type(e.ToolResult)] == [True, True]
