"""Precise BatchNorm statistics: a hook, and a function to call by hand."""
