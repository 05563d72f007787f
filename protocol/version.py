"""Versions. Pure data; imports nothing, so that it costs nothing at start."""

VERSION = "0.1.0"
"""Version of the daemon and of this package."""

PROTOCOL_VERSION = 1
"""The only version of the RPC protocol that this daemon speaks."""

SUPPORTED_VERSIONS = (1,)

RECORD_VERSION = 1
"""Version of the record format that `metadata` carries."""
