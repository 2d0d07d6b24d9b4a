"""Programs of two processes, which the tests start and whose files they read."""
