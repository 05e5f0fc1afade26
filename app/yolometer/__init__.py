"""The yolometer command and the box that runs everything in one process."""
