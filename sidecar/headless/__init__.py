"""One prompt, one answer, no host: `sidecar run`."""
