"""Hooks that keep an average of the weights: EMA and SWA."""
