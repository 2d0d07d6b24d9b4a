"""Small tools without knowledge of hooks; every other folder may import from here."""
