"""The main job, shown: a conversation with tools, a compaction, a kill and a resume."""
