"""``lightning-hooks check``: import an old project in another process and say whether it trains."""
