"""Groups of parameters for optimizers: rates and decays by kind, name and layer."""
