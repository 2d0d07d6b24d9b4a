"""Break things on purpose: kills, broken disks, bad input and bad batches."""
