"""`todo_write`: the agent's list of what is to be done."""

from __future__ import annotations

from protocol.events import TodoItem
from protocol.messages import JsonObject
from sidecar.tools.builtin.common import builtin
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.refusal import Refused
from sidecar.tools.text import clean, count

MAX_ITEMS = 200
MAX_CHARACTERS = 1000
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


async def todo_write(context: ToolContext, todos: list[JsonObject]) -> ToolOutcome:
    """Replaces the whole list; the result shows it as it now stands."""
    if context.todos is None:
        raise Refused("This session keeps no todo list.")
    items = tuple(TodoItem(clean(t["content"]), t["status"]) for t in todos)
    for number, item in enumerate(items, 1):
        if not item.content.strip():
            raise Refused(f"Item {number} of the list is empty: say what is to be done, or leave it out.")
    await context.todos.replace(items)
    if not items:
        return ToolOutcome.text("The todo list is empty now.")
    done = sum(i.status == "done" for i in items)
    lines = [f"{_MARKS[i.status]} {i.content}" for i in items]
    return ToolOutcome.text("\n".join([f"{count(len(items), 'item')}, {done} done:", *lines]))


TOOL = builtin(
    todo_write,
    description=(
        "Replaces the todo list of this session. Give the whole list each time. Use it for work of several steps:"
        " keep one item in_progress, mark items done as soon as they are."
    ),
    properties={
        "todos": {
            "type": "array",
            "maxItems": MAX_ITEMS,
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string", "minLength": 1, "maxLength": MAX_CHARACTERS},
                    "status": {"type": "string", "enum": ["pending", "in_progress", "done"]},
                },
                "required": ["content", "status"],
                "additionalProperties": False,
            },
        }
    },
    required=("todos",),
    conflict_key=lambda _context, _arguments: "todos",
)
