"""One operator a file, named by a verb or by what it keeps; found by discovery."""
