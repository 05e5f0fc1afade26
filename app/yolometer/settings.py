"""Settings of one box, from a YAML file, the environment and the command line; the later wins."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import Field

from yolometer_core.config import Config, load


class BoxConfig(Config):
    """What `yolometer up` needs to know; every key also as `YOLOMETER_<KEY>`. docs/deployment.md shows a whole file."""

    store: str | None = Field(default=None, description="where the rows are kept (a URL); a folder in your home by default")
    watch: tuple[str, ...] = Field(default=(), description="folders, files and globs to watch")
    port: int = Field(default=8787, ge=0, le=65535, description="port of the page on loopback; 0 for none")
    gpu_model: str | None = Field(default=None, description="model of the GPUs, instead of what the logs say")
    gpus: int | None = Field(default=None, ge=1, description="GPUs that each run holds, instead of what the logs say")
    price: Decimal | None = Field(default=None, ge=0, description="price of one GPU-hour; without it the cost is unknown")
    currency: str = Field(default="USD", pattern="^[A-Z]{3}$", description="currency of the price, ISO 4217")
    owner: dict[str, str] = Field(default_factory=dict, description="whose runs they are, for example team: vision")
    node: str | None = Field(default=None, description="name of this node; the host name by default")
    processes: bool = Field(default=True, description="also watch logs that running processes write, wherever they are")
    recent_s: float = Field(default=30.0, ge=0, description="a log that grew so lately counts as written anyway")
    state: Path | None = Field(default=None, description="file that remembers how far it got; beside the store by default")


def settled(path: Path | None, given: dict[str, Any]) -> BoxConfig:
    """The settings of the file and the environment, with what was given on the command line instead where it was."""
    return load(BoxConfig, path).model_copy(update={name: value for name, value in given.items() if value is not None})
