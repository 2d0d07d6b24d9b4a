"""The runner: the state of a run for hooks, under mmcv's names; independent of the driver."""
