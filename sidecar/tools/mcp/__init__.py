"""Tools of MCP servers. The package `mcp` is imported when the first server is started, in a thread."""

from sidecar.tools.mcp.pool import McpPool

__all__ = ["McpPool"]
