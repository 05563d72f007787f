"""What several tests need: a model behind real HTTP, a real daemon process, readers of logs and request bodies."""
