"""Hooks that log a run to an experiment tracker, one file for each backend."""
