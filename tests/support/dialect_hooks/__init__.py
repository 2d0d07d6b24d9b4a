"""Hooks for each library with a dialect, in the style of the library's users."""
