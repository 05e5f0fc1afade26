"""The commands, one a file: what they take, what they print, how they end."""
