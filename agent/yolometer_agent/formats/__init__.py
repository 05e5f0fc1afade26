"""One log format a file; found by discovery, recognised by content."""
