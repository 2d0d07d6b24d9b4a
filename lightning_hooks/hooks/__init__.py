"""The hook families."""
