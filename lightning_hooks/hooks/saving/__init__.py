"""Keep checkpoints: the last ones, and the best by an evaluation."""
