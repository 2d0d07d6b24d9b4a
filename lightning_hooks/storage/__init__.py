"""Files that survive a kill: atomic writes, locks, checksums and the list of checkpoints.

Every folder above may import from here; nothing here imports the engine.
"""
