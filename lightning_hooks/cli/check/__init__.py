"""``lightning-hooks check``: tell whether an old project trains, by importing the project."""
