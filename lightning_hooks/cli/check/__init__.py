"""``lightning-hooks check``: import an old project in a process of its own, and judge it."""
