"""Read the logs of a run."""
