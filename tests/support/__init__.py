"""Code that tests share: modules, processes, recorded values, faults."""
