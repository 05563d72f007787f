"""Models behind one port: dialects, transport, retries, the model table."""
