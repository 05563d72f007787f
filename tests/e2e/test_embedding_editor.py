"""A host that lends its open files and its terminal: `file.read`, `file.write`, `terminal.run`."""

from __future__ import annotations

import anyio

from protocol.chat import ApprovalParams, ApprovalResult
from protocol.editor import FileReadParams, FileWriteParams, TerminalRunParams, TerminalRunResult
from sidecar.client import Answers, SidecarClient
from tests.support.fake_llm import FakeLLM, Reply, call, sequence
from tests.support.running import running_sidecar, serving_sidecar, until

ALL = {"tools": {"builtin": "all"}}


class Lender:
    """Buffers by path, and a terminal that only notes what it is asked."""

    def __init__(self, buffers: dict[str, str]) -> None:
        self.buffers = buffers
        self.asked: list[str] = []
        self.ran: list[TerminalRunParams] = []
        self.hang = False
        self.ended = anyio.Event()

    def answers(self) -> Answers:
        return Answers(self.approve, None, self.read, self.write, self.run)

    async def approve(self, request: ApprovalParams) -> ApprovalResult:
        return ApprovalResult(outcome="allow_once")

    async def read(self, params: FileReadParams) -> str | None:
        self.asked.append(f"file.read {params.path}")
        return self.buffers.get(params.path)

    async def write(self, params: FileWriteParams) -> bool:
        self.asked.append(f"file.write {params.path}")
        if params.path not in self.buffers:
            return False
        self.buffers[params.path] = params.text
        return True

    async def run(self, params: TerminalRunParams) -> TerminalRunResult:
        self.ran.append(params)
        try:
            if self.hang:
                await anyio.sleep_forever()
        finally:
            self.ended.set()
        return TerminalRunResult(output="seen by the user\n", exit_code=0)


async def test_open_files_come_from_the_host_and_all_others_from_the_disk() -> None:
    script = sequence(
        Reply("", tool_calls=[call("edit_file", {"path": "a.txt", "old_text": "open", "new_text": "edited"})]),
        Reply("", tool_calls=[call("write_file", {"path": "b.txt", "content": "new\n"})]),
        Reply("done"),
    )
    with FakeLLM(script) as llm:
        lender = Lender({})
        async with running_sidecar(llm=llm, answers=lender.answers()) as sidecar:
            (sidecar.work / "a.txt").write_text("disk\n")
            lender.buffers[str(sidecar.work / "a.txt")] = "open\n"
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), config=ALL)
            await sidecar.client.chat.run(session.session_id, "edit")
            assert lender.buffers[str(sidecar.work / "a.txt")] == "edited\n"
            assert (sidecar.work / "a.txt").read_text() == "disk\n"
            assert (sidecar.work / "b.txt").read_text() == "new\n"
            assert f"file.write {sidecar.work / 'b.txt'}" in lender.asked


async def test_commands_run_in_the_hosts_terminal_and_end_with_the_turn() -> None:
    script = sequence(
        Reply("", tool_calls=[call("run_command", {"command": "make", "timeout_s": 7}, id="r1")]),
        Reply("done"),
        Reply("", tool_calls=[call("run_command", {"command": "sleep 100"})]),
    )
    with FakeLLM(script) as llm:
        lender = Lender({})
        async with running_sidecar(llm=llm, answers=lender.answers()) as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), config=ALL)
            await sidecar.client.chat.run(session.session_id, "build")
            asked = lender.ran[0]
            assert (asked.command, asked.cwd, asked.timeout_s, asked.tool_call_id) == (
                "make",
                str(sidecar.work),
                7,
                "r1",
            )
            assert llm.requests[-1].texts[-1] == ("tool", "seen by the user\n[exit code 0]")
            lender.hang, lender.ended = True, anyio.Event()
            await sidecar.client.chat.send(session.session_id, "wait")
            await until(lambda: len(lender.ran) == 2, what="terminal.run")
            assert await sidecar.client.chat.cancel(session.session_id)
            with anyio.fail_after(5):
                await lender.ended.wait()


async def test_only_one_of_several_hosts_is_asked_and_the_disk_serves_when_it_has_gone() -> None:
    script = sequence(
        Reply("", tool_calls=[call("read_file", {"path": "a.txt"})]),
        Reply("done"),
        Reply("", tool_calls=[call("read_file", {"path": "a.txt"})]),
        Reply("done"),
    )
    with FakeLLM(script) as llm:
        async with serving_sidecar(llm=llm) as (place, path, _), SidecarClient.connect(path) as shell:
            (place.work / "a.txt").write_text("disk\n")
            file = str(place.work / "a.txt")
            first, second = Lender({file: "first\n"}), Lender({file: "second\n"})
            session = (await shell.sessions.create(cwd=str(place.work), config=ALL)).session_id
            async with (
                SidecarClient.connect(path, answers=first.answers()) as one,
                SidecarClient.connect(path, answers=second.answers()) as two,
            ):
                await one.sessions.attach(session)
                await two.sessions.attach(session)
                await shell.chat.run(session, "read")
                assert llm.requests[-1].texts[-1] == ("tool", "first\n")
                assert second.asked == []
            await shell.chat.run(session, "read again")
            assert llm.requests[-1].texts[-1] == ("tool", "disk\n")
