"""Hooks as users of each library write them, which our dialects host."""
