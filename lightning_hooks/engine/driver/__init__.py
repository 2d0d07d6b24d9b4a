"""The driver: the one callback of a Trainer that calls the hooks at the ten points.

Only ``engine/hook.py`` and the adapter import from here.
"""
