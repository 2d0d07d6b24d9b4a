"""All reads and changes of Lightning's private names.

No other folder of the package names an attribute of Lightning with a leading underscore.
"""
