"""Small tools that do not depend on hooks; every other folder may import from here."""
