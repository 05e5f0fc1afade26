"""Reads training nodes: tails logs, recognises formats, turns lines into events."""
