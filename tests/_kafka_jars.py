"""The jars of Apache Kafka for the tests, fetched once by Maven, and certificates for its TLS listener."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).parent / "kafka"
CACHE = Path(__file__).parents[1] / ".cache" / "kafka"
FETCH_S = 240


@lru_cache(maxsize=1)
def jars() -> Path:
    """The folder of jars that tests/kafka/pom.xml names; a changed pom.xml gets a new folder.

    1. Look for the folder: its name holds the digest of pom.xml, and it only exists when it is complete.
    2. Take the lock of the cache and look again: another process may have fetched it meanwhile.
    3. Fetch into a folder beside it. 4. Rename.
    """
    digest = hashlib.sha256((HERE / "pom.xml").read_bytes()).hexdigest()[:16]
    ready = CACHE / digest
    if ready.is_dir():
        return ready
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / "lock", timeout=FETCH_S + 60):
        if not ready.is_dir():
            _fetch(ready)
    return ready


def _fetch(ready: Path) -> None:
    if not shutil.which("mvn") or not shutil.which("java"):
        raise RuntimeError("The tests start a real Apache Kafka and need `mvn` and `java` 17 or newer; install them.")
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=CACHE) as scratch:
        fetched = Path(scratch) / "jars"
        said = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies",
             "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_S, check=False,
        )  # fmt: skip
        if said.returncode:
            raise RuntimeError(f"Maven could not fetch Apache Kafka: {said.stdout[-2000:]}{said.stderr[-2000:]}")
        fetched.rename(ready)


def certificates(folder: Path) -> Path:
    """Write `ca.crt` and the broker's `broker.pem` (key, certificate, CA) for 127.0.0.1; returns the path of `ca.crt`."""
    (folder / "ext.cnf").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for command in (
        ["req", "-x509", *curve, "-days", "30", "-subj", "/CN=test-ca", "-addext", "keyUsage=critical,keyCertSign",
         "-keyout", "ca.key", "-out", "ca.crt"],
        ["req", *curve, "-subj", "/CN=127.0.0.1", "-keyout", "broker.key", "-out", "broker.csr"],
        ["x509", "-req", "-in", "broker.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30",
         "-extfile", "ext.cnf", "-out", "broker.crt"],
    ):  # fmt: skip
        subprocess.run(["openssl", *command], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=30)
    parts = ("broker.key", "broker.crt", "ca.crt")
    (folder / "broker.pem").write_text("".join((folder / name).read_text() for name in parts))
    return folder / "ca.crt"
