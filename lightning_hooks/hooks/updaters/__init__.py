"""Hooks that set learning rates and momenta by a schedule."""
