"""Hooks that measure where the time of a run goes."""
