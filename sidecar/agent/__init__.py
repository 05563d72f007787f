"""The agent: one context, its turns and steps. What it needs from outside are ports."""
