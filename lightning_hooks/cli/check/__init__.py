"""``lightning-hooks check``: report whether old hook files run here, without running them."""
