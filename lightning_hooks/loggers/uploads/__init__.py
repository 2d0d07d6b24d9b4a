"""Checkpoints on their way to an experiment tracker."""
