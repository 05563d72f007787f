"""A session's log as one page to look at: context use, compactions, cache, cost."""

from sidecar.inspect.page import render
from sidecar.inspect.reading import build
from sidecar.inspect.report import Report
from sidecar.inspect.stored import page_of

__all__ = ["Report", "build", "page_of", "render"]
