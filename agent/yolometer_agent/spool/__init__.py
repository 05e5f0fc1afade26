"""The spool: numbered messages wait on disk between the part that makes them and the part that sends them."""
