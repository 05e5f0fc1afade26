"""One store a file; found by the scheme of its URL."""
