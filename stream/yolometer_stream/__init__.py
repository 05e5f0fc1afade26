"""Thinks: operators that fold events into events, and the runners that drive them."""
