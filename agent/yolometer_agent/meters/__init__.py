"""One meter a file; found by discovery, chosen by the settings."""
