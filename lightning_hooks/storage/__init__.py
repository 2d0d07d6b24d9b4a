"""Files that survive a kill: atomic writes, locks, checksums and the list of checkpoints.

All other folders may import this folder; this folder imports ``utils`` alone.
"""
