"""Where the values of a run are written: one module for each destination."""
