"""Nothing that fills up is without a bound: queues, streams, deques that serve as queues."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.source import Module, modules

QUEUES = {"Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"}


def unbounded(call: ast.Call) -> str | None:
    """Why this call makes something without a bound; None if it does not."""
    name = ast.unparse(call.func).split("[")[0]
    tail = name.split(".")[-1]
    if tail in QUEUES:
        size = _argument(call, 0, "maxsize")
        if tail == "SimpleQueue" or size is None or _is_zero(size):
            return f"{name} without maxsize"
    if tail == "create_memory_object_stream":
        size = _argument(call, 0, "max_buffer_size")
        if size is not None and "inf" in ast.unparse(size):
            return f"{name} with an endless buffer"
    if tail == "deque" and _argument(call, 1, "maxlen") is None:
        return "deque without maxlen"
    return None


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if len(call.args) > position else None


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def findings(module: Module) -> list[str]:
    """Lines that say why they may (`# bounded: ...`) are left out: a deque whose owner counts it, for example."""
    lines = module.text.splitlines()
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and (why := unbounded(node)) is not None:
            around = "\n".join(lines[max(0, node.lineno - 2) : (node.end_lineno or node.lineno)])
            if "# bounded:" not in around:
                found.append(f"{module.path}:{node.lineno} {why}")
        elif isinstance(node, ast.keyword) and node.arg == "default_factory" and ast.unparse(node.value) == "deque":
            line = lines[node.value.lineno - 1]
            if "# bounded:" not in line:
                found.append(f"{module.path}:{node.value.lineno} deque without maxlen")
    return found


def test_every_queue_is_bounded() -> None:
    found = [f for m in modules("sidecar", "record_store") for f in findings(m)]
    assert not found, "give it a bound, or say in `# bounded: ...` what bounds it:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("asyncio.Queue()", True),
        ("asyncio.Queue(maxsize=0)", True),
        ("asyncio.Queue(8)", False),
        ("queue.SimpleQueue()", True),
        ("anyio.create_memory_object_stream[int](math.inf)", True),
        ("anyio.create_memory_object_stream(max_buffer_size=float('inf'))", True),
        ("anyio.create_memory_object_stream[int](4)", False),
        ("deque()", True),
        ("deque([], 3)", False),
        ("deque(maxlen=n)", False),
    ],
)
def test_the_check_sees_what_it_should(text: str, wrong: bool) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert (unbounded(call) is not None) is wrong
