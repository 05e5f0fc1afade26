"""Programs that tests of the spool run as processes of their own, by name: `kill`, `memory`, `limit`."""

from __future__ import annotations

import os
import resource
import signal
import sys

from yolometer_agent.spool.spool import Spool
from yolometer_core.errors import Unavailable


def kill(folder: str) -> None:
    """Append for ever; confirm each seq on standard output once `append` returned, and say what is acknowledged next."""
    spool = Spool(folder, max_bytes=10**8, max_age_s=1e9, segment_bytes=20_000, fsync_s=0.05)
    spool.append_state(b"state")
    acked = spool._lane.acked
    while True:
        seq = spool.append(b"t", b"k", lambda epoch, number: b"%d:%d " % (epoch, number) * (number % 40 + 1))
        if seq % 10 == 0:
            acked = spool.read(5, 10_000)[-1].seq
        os.write(1, b"%d %d\n" % (seq, acked))
        spool.ack(acked)


def memory(folder: str) -> None:
    """Spool 200 MB, then read some of it and look at the gauges; print by how many bytes the process grew."""
    spool = Spool(folder, max_bytes=10**9, max_age_s=1e9, fsync_s=1e9)
    value = os.urandom(50_000)
    spool.append(b"t", b"k", lambda _epoch, _number: value)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(4000):
        spool.append(b"t", b"k", lambda _epoch, _number: value)
    assert spool.size_bytes > 200_000_000
    read = 0
    while some := spool.read(100, 1_000_000):
        read += len(some)
    spool.rewind()
    assert read == spool.messages_waiting == 4001
    assert spool.oldest_wall_ms is not None
    spool.close()
    again = Spool(folder, max_bytes=10**9, max_age_s=1e9)
    again.close()
    sys.stdout.write(str((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024))


def limit(folder: str) -> None:
    """Files may have 5,000 bytes for a while. Print the refusals, and all that was read back at the end."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
    spool = Spool(folder, max_bytes=10**6, max_age_s=1e9, segment_bytes=100_000)
    given, refused = [], []
    for _ in range(80):
        try:
            given.append(spool.append(b"t", b"k", lambda _epoch, number: b"%d " % number * 50))
        except Unavailable as error:
            refused.append(str(error))
        if len(refused) == 5:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert [message.seq for message in spool.read(1000, 10**6)] == given
    assert given[-1] - given[0] + 1 == len(given) == 75
    assert sum(path.stat().st_size for path in spool.folder.glob("*.seg")) == spool.size_bytes
    spool.close()
    again = Spool(folder, max_bytes=10**6, max_age_s=1e9)
    assert again.torn_bytes == 0 and again.epoch == spool.epoch
    assert [message.seq for message in again.read(1000, 10**6)] == given
    again.close()
    sys.stdout.write("\n".join(refused))


if __name__ == "__main__":
    {"kill": kill, "memory": memory, "limit": limit}[sys.argv[1]](sys.argv[2])
