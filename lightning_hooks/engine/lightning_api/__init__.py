"""Everything that reads or changes Lightning's private names.

No other folder of the package names an attribute of Lightning that begins with an underscore.
"""
