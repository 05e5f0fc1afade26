"""The tail: turns files that grow, rotate, vanish and come back into chunks of records. It knows no format and no event."""
