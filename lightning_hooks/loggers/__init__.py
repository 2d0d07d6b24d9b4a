"""Hooks that log a run: to text files here, to experiment trackers in ``trackers``."""
