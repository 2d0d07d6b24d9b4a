"""The way of a record from the training thread to a backend: spool file, thread, client."""
