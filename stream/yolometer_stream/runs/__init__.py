"""The truth about runs: from the facts of all sources of a place to trainings, their books, and their rows. Pure functions."""
