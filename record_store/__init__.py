"""The event log on disk: records, log, fold, checkpoint, lock, repair. See FORMAT.md."""
