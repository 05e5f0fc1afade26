"""Visibility: whether the pids that the driver gives can be looked up in a /proc, and whether that shows other users."""

from __future__ import annotations

from pathlib import Path

_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel gives the host's this number: PROC_PID_INIT_INO in proc_ns.h


def sees_host(proc: Path = Path("/proc")) -> bool:
    """Whether the pids below `proc` are those of the host, which are the ones the driver gives.

    In a container with a pid namespace of its own the same numbers are other processes. Its own /proc then shows the agent
    under one number, the host's /proc under one for each namespace it is in. True where the kernel does not tell.
    """
    try:
        status = (proc / "self" / "status").read_text(encoding="utf-8", errors="replace")
        own = (proc / "self" / "ns" / "pid").readlink().name
    except OSError:
        return True
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(numbers) > 1 or own == _FIRST_NAMESPACE


def hides_others(proc: Path = Path("/proc")) -> bool:
    """Whether processes of other users are not even listed (mount option hidepid): process 1 always runs."""
    try:
        return (proc / "self").exists() and not (proc / "1").exists()
    except OSError:
        return True


__all__ = ["hides_others", "sees_host"]
