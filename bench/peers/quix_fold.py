"""The fold as a Quix Streams program: its state in RocksDB with a changelog topic, its defaults for everything else.

quix_fold.py BROKER TOPIC OUT STATE_FOLDER MESSAGES   (0 messages: start, wait a few seconds, end)
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from _fold import start, step

# one of its dependencies warns of another one
with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
    from quixstreams import Application
    from quixstreams.models import TopicConfig

broker, source, out, folder, count = sys.argv[1:]
settings = TopicConfig(num_partitions=4, replication_factor=1)
app = Application(broker, consumer_group=f"{source}-quix", auto_offset_reset="earliest", state_dir=folder, loglevel="WARNING")
rows = app.topic(out, value_serializer="bytes", key_serializer="str", config=settings)


def fold(raw: bytes, state: Any) -> list[bytes]:
    held = state.get("node") or start()
    said = step(held, raw)
    state.set("node", held)
    return said


frame = app.dataframe(app.topic(source, value_deserializer="bytes", key_deserializer="str", config=settings))
frame.apply(fold, stateful=True, expand=True).to_topic(rows)
app.run(count=int(count), timeout=5.0 if count == "0" else 60.0, collect=False)
