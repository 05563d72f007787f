"""A session's log as one page to look at: context use, compactions, cache, cost."""

from sidecar.inspect.page import render
from sidecar.inspect.reading import build
from sidecar.inspect.report import Report

__all__ = ["Report", "build", "render"]
