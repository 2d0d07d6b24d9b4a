"""Histograms of parameters and gradients."""
