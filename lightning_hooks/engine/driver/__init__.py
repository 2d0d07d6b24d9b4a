"""The driver: the callback of a Trainer that calls all hooks at the ten points.

Only ``engine/hook.py`` and the adapter import from here.
"""
