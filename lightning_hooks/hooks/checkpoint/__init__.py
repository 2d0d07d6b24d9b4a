"""``CheckpointHook`` and what it is made of: when to save, where to, and which files to keep."""
