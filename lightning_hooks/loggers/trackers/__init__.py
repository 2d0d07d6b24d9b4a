"""Loggers to experiment trackers, a file for each tracker."""
