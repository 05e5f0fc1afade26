"""The stores of these tests: real chDB and a real ClickHouse server (tests/_clickhouse_server.py)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from _clickhouse_server import chdb_store, empty_store, kept_chdb_store, kept_store, store  # needs the line above

__all__ = ["chdb_store", "empty_store", "kept_chdb_store", "kept_store", "store"]
