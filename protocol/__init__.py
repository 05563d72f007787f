"""What crosses the pipe: messages, methods, events, errors. Pure data; imports nothing of ours."""
