"""The loggers of the stand-in, where they differ from the native ones."""
