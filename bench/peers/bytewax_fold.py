"""The fold as a Bytewax dataflow: its state in its recovery store (SQLite), its defaults for everything else.

BENCH_BROKER=... BENCH_TOPIC=... BENCH_OUT=... python -m bytewax.run bytewax_fold -r FOLDER -s 10 -b 0

It ends at the end of the topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import bytewax.operators as op
from _fold import start, step
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow

BROKERS = [os.environ["BENCH_BROKER"]]


def fold(state: dict[str, Any] | None, raw: bytes) -> tuple[dict[str, Any], Iterable[bytes]]:
    held = state or start()
    return held, step(held, raw)


flow = Dataflow("fold")
read = kop.input("read", flow, brokers=BROKERS, topics=[os.environ["BENCH_TOPIC"]], tail=False, batch_size=1000)
keyed = op.map("key", read.oks, lambda message: (message.key.decode(), message.value))
said = op.stateful_flat_map("fold", keyed, fold)
out = op.map("message", said, lambda pair: KafkaSinkMessage(pair[0].encode(), pair[1]))
kop.output("write", out, brokers=BROKERS, topic=os.environ["BENCH_OUT"])
