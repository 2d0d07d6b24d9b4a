"""Small tools without knowledge of hooks, for all other folders."""
