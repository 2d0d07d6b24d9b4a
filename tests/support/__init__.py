"""Shared by the tests: what they train, start, compare with and break."""
