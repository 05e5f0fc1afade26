"""Keeps: writes events to stores and says alerts aloud."""
