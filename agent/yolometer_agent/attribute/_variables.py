"""Variables: the few of an environment that are ever kept. All others, secrets among them, are dropped where they are read."""

from __future__ import annotations

NAMES = frozenset({
    "YOLOMETER_RUN", "YOLOMETER_TEAM", "YOLOMETER_USER",
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_HET_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_STEP_ID",
    "SLURM_CLUSTER_NAME", "SLURM_JOB_ACCOUNT", "SLURM_JOB_USER",
    "LSB_JOBID", "LSB_JOBINDEX", "LSB_PROJECT_NAME", "PBS_JOBID", "PBS_ACCOUNT", "JOB_ID", "SGE_TASK_ID",
    "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE",
})  # fmt: skip
"""The only names that are kept."""
VALUE_BYTES = 200
"""A longer value is no id and no name, and is dropped too."""


def allowed(environ: bytes) -> dict[str, str]:
    """The variables in NAMES whose values are short and printable; the first of each name, as getenv takes it."""
    found: dict[str, str] = {}
    for entry in environ.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if not equals or not 0 < len(value) <= VALUE_BYTES or not name.isascii():
            continue
        key = name.decode("ascii")
        if key in NAMES and key not in found:
            text = value.decode("utf-8", "replace").strip()
            if text and text.isprintable() and "\ufffd" not in text:
                found[key] = text
    return found


__all__ = ["NAMES", "VALUE_BYTES", "allowed"]
