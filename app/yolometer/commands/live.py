"""`yolometer up` and `yolometer demo`: one box, live, with a table that moves."""

from __future__ import annotations

import socket
import sys
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from rich.live import Live

from yolometer import demo, options, show
from yolometer.box import closing
from yolometer.page import Page
from yolometer.settings import settled
from yolometer.up import Beat, checkpoint_of, own_files, run
from yolometer_core.errors import BadUsage
from yolometer_core.service.stopping import Stop
from yolometer_sinks.open_store import open_store
from yolometer_sinks.stores._base import Store
from yolometer_stream.runs.rows import Terms

DEMO_PRICE = Decimal("2.50")


def up_command(
    watch: Annotated[list[str] | None, typer.Option(metavar="GLOB_OR_DIR", help="What to watch; may be repeated.")] = None,
    store: options.Store = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the page on loopback, 8787; 0 for none.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML file of these settings; options win.")] = None,
    gpu_model: options.GpuModel = None,
    gpus: options.Gpus = None,
    price: options.Price = None,
    currency: Annotated[str | None, typer.Option(help="Currency of the price, ISO 4217: USD.")] = None,
    owner: options.Owner = None,
    node: options.Node = None,
    processes: Annotated[
        bool | None, typer.Option(help="Also watch logs that running processes write, wherever they are (yes).")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="File that remembers how far it got; beside an embedded store by default.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Watch trainings on this machine and keep the store up to date; started again, it goes on where it stopped.

    Examples:

      yolometer up --watch runs/

      yolometer up --watch '/data/*/runs' --store chdb:///var/lib/yolometer --gpu-model A100 --price 2.5

      yolometer up --config /etc/yolometer.yaml

    SIGTERM or Ctrl-C ends it with everything stored. With --json it prints one line of JSON for each change of a run.
    """
    if not all(pattern.strip() for pattern in watch or []):
        raise BadUsage("A path to watch is empty; name a folder, a file or a glob with --watch.")
    told = options.terms(gpu_model, gpus, price, currency or "USD", owner)
    given = {"watch": tuple(watch) if watch else None, "store": store, "port": port, "gpu_model": gpu_model, "gpus": gpus,
             "price": told.price_per_gpu_hour, "currency": currency and told.currency, "owner": dict(told.owner) or None,
             "node": node, "processes": processes, "state": state}  # fmt: skip
    box = settled(config, given)
    url = box.store or options.default_store()
    stop = Stop()
    stop.on_signals()
    screen_of = Screen(as_json, "Ctrl-C ends it with everything stored.")
    with closing(open_store(url)) as opened, Page(box.port, opened, url) as page, screen_of as screen:
        opened.migrate()
        if page.url and not as_json:
            show.errors().print(f"Page: {page.url}")

        def beat(seen: Beat) -> None:
            page.show(seen)
            screen.show(seen)

        terms = Terms(box.gpu_model, box.gpus, box.price, box.currency, tuple(box.owner.items()))
        run(
            opened,
            terms,
            watch=box.watch,
            node=box.node or socket.gethostname(),
            stop=stop,
            checkpoint=checkpoint_of(url, box.state),
            processes=box.processes,
            exclude=own_files(url),
            recent_s=box.recent_s,
            beat=beat,
            warn=screen.warn,
        )


def demo_command(
    seconds: Annotated[float, typer.Option(min=1, max=170, help="How long the captured trainings play.")] = 20,
    store: options.Store = "chdb://memory",
    as_json: options.Json = False,
) -> None:
    """Play captured trainings of several families at speed, live, and say what each one cost and what was wasted.

    Example: yolometer demo --seconds 10

    The logs are real, of tiny trainings on a CPU, told at the price of one GPU; nothing is read from the network.
    """
    terms = options.terms("demo GPU", 1, str(DEMO_PRICE), "USD", ["team=demo"])
    stop = Stop()
    stop.on_signals()
    with closing(open_store(store or "chdb://memory")) as opened:
        opened.migrate()
        with Screen(as_json, f"demo: captured trainings at {DEMO_PRICE} USD per GPU-hour", final=False) as screen:
            demo.play(opened, terms, seconds=seconds, stop=stop, beat=screen.show)
        _report(opened, as_json)


def _report(store: Store, as_json: bool) -> None:
    found = demo.answers(store)
    if as_json:
        print(show.document(found))
        return
    console = show.out()
    console.print(show.runs_grid(found["runs"], title="What each training used and cost"))
    console.print()
    for run_row in found["runs"]:
        console.print(_sentence(run_row))
    console.print()
    if found["wasted_tokens"]:
        console.print(_wasted(found["wasted_tokens"]))


def _sentence(row: dict[str, Any]) -> str:
    """One run in words: tokens, GPU-hours, money, and money per point of mAP."""
    name = row["name"] or row["run_id"]
    said = [f"{name}: {show.short(row['tokens_mtok'], 5)} MTok"]
    if row["gpu_seconds"] is None:
        said.append("time unknown (its log has no clock that is fine enough), so cost unknown")
    else:
        said.append(f"{row['gpu_seconds'] / 3600:.5f} GPU-h, {show.money(row['cost'], row['currency'])}")
        if row["best_map50_95"] and row["cost"] is not None:
            per_point = Decimal(str(row["cost"])) / (Decimal(str(row["best_map50_95"])) * 100)
            said.append(f"{show.money(per_point, row['currency'])} per point of mAP50-95")
    return ", ".join(said) + "."


def _wasted(rows: list[dict[str, Any]]) -> Any:
    from yolometer_sinks.stores._base import Table

    columns = tuple(rows[0])
    return show.answer_grid(Table(columns, [tuple(row.values()) for row in rows]), {}, "What was wasted, and why")


class Screen:
    """Shows the runs while they move: a live table on a terminal, JSON lines for machines, a line per change elsewhere."""

    def __init__(self, as_json: bool, title: str, final: bool = True) -> None:
        self._json = as_json
        self._title = title
        self._final = final
        console = show.errors()
        moving = console.is_terminal and not as_json
        self._live = Live(console=console, auto_refresh=False, transient=not final) if moving else None
        self._said: dict[str, tuple[Any, ...]] = {}
        self._problem: str | None = None

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def warn(self, problem: str) -> None:
        """Say a problem at once; it does not end the command."""
        print(f"yolometer: {problem}", file=sys.stderr, flush=True)

    def show(self, seen: Beat) -> None:
        """Show one beat."""
        if seen.problem and seen.problem != self._problem and not self._live:
            self.warn(seen.problem)
        self._problem = seen.problem
        if self._json:
            if self._final:
                for run_id in seen.withdrawn:
                    print(show.document({"withdrawn": run_id}), flush=True)
                for run_event in seen.changed:
                    print(show.document({"run": {name: getattr(run_event, name) for name in show.RUN_FIELDS}}), flush=True)
        elif self._live:
            rows = [show.moving(run_event) for run_event in seen.runs.values()]
            problem = f"  waiting: {seen.problem}" if seen.problem else ""
            title = f"{self._title}  {seen.sources} files, {seen.rows} rows{problem}"
            self._live.update(show.runs_grid(rows, title=title), refresh=True)
        else:
            self._lines(seen)

    def _lines(self, seen: Beat) -> None:
        for run_event in seen.changed:
            now = (run_event.status, run_event.epochs_done)
            if self._said.get(run_event.run_id) != now:
                self._said[run_event.run_id] = now
                row = show.moving(run_event)
                cost = show.money(row["cost"], row["currency"])
                show.errors().print(
                    f"{row['run_id']}: {show.short(row['status'])}, "
                    f"epoch {show.short(row['epochs_done'])}/{show.short(row['epochs_planned'])}, "
                    f"{show.short(row['tokens_mtok'], 5)} MTok, {cost}"
                )

