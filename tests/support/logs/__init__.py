"""Reads back what a run has logged."""
