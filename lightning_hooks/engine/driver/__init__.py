"""The driver: the callback of a Trainer that calls all hooks at the ten points."""
