"""``lightning-hooks check``: old hook files are read, not run, and judged."""
