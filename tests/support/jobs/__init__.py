"""Multi-process programs started by tests, with results in files."""
