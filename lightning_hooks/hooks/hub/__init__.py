"""Checkpoints on the Hugging Face Hub."""
