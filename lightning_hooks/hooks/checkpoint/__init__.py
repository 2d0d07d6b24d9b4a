"""``CheckpointHook`` and its parts: when to save, under which name, and which files to keep."""
