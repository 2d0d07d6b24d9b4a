"""``lightning-hooks check``: read old hook files, without running them, and report problems."""
