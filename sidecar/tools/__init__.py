"""The daemon's own tools, MCP servers, and what guards them."""
