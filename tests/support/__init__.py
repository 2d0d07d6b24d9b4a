"""Shared code of the tests: modules, processes, recorded values, faults."""
