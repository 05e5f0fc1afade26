"""Prices of GPU time: read, checked, and found for a GPU at a time; one part a file (docs/prices.md)."""
