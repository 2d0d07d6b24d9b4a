"""Images, tables and histograms on their way to trackers."""
