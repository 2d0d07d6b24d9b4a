"""The former place of :mod:`lightning_hooks.hooks.saving`, for two paths shown on pages."""
