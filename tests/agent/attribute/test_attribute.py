"""Attribution as a whole: nodes of files described in YAML, what changes between looks, and laws that hold for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from _made import Made, load, run_case, told
from hypothesis import given
from hypothesis import strategies as st

from yolometer_agent.attribute._base import WHOLE_MICRO, Claim, GpuProcess, Held, Holder, Scene
from yolometer_agent.attribute._shares import active_micro, split_micro
from yolometer_agent.attribute.attribute import Attributor, sources_of
from yolometer_core.errors import BadConfig

CASES = Path(__file__).parents[2] / "cases" / "attribute"


def _nodes() -> list[Any]:
    found = []
    for path in sorted((CASES / "nodes").glob("*.yaml")):
        for case in load(path):
            found.append(pytest.param(case, id=f"{path.stem}: {case['about']}"))
    return found


@pytest.mark.parametrize("case", _nodes())
def test_a_node(tmp_path: Path, case: dict[str, Any]) -> None:
    """Whoever the case says works on each GPU, and all shares of it."""
    attributor, found = run_case(tmp_path, case)
    for uuid, like in case["expect"].items():
        assert told(found[uuid], like) == like
    assert found.keys() == case["gpus"].keys()
    assert all(sum(holder.share_micro for holder in holders) == WHOLE_MICRO for holders in found.values())
    for words, least in case.get("counts", {}).items():
        source, reason = words.split()
        assert attributor.counts[source, reason] == least, attributor.counts
    if "jobs" in case:
        assert attributor.jobs() == case["jobs"]


def test_one_that_ended_counts_once_for_whom_it_worked(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10)
    known = [made.place("node1:/a", {"folder": "runs/a", "writers": [10]})]
    attributor = made.attributor()
    gpus = {"GPU-0": [GpuProcess(10)]}
    assert attributor.refresh(gpus, known)["GPU-0"][0].holder == "node1:/a"
    made.ends(10)
    assert attributor.refresh(gpus, known)["GPU-0"][0].holder == "node1:/a"
    assert attributor.refresh(gpus, known)["GPU-0"] == [Holder(None, None, None, None, None, WHOLE_MICRO, processes=1)]
    assert attributor.refresh({"GPU-0": []}, known)["GPU-0"][0].attribution_source == "idle"


def test_a_pid_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10, {"env": {"YOLOMETER_RUN": "first"}})
    attributor = made.attributor()
    gpus = {"GPU-0": [GpuProcess(10)]}
    assert attributor.refresh(gpus)["GPU-0"][0].run_id == "first"
    made.process(10, {"env": {"YOLOMETER_RUN": "second"}, "ago_s": 5, "uid": 1001})
    assert attributor.refresh(gpus)["GPU-0"][0][:3] == ("second", "job:yolometer::second", "ben")


def test_what_a_parent_tells_goes_with_the_parent(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(9, {"env": {"YOLOMETER_RUN": "night"}})
    made.process(10, {"parent": 9, "environ": ""})
    attributor = made.attributor()
    gpus = {"GPU-0": [GpuProcess(10)]}
    assert attributor.refresh(gpus)["GPU-0"][0].run_id == "night"
    made.process(10, {"parent": 1, "environ": ""})
    assert attributor.refresh(gpus)["GPU-0"][0].run_id is None


def test_a_log_that_is_opened_later_is_found_later(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10, {"cwd": "elsewhere"})
    known = [made.place("node1:/a", {"folder": "runs/a"})]
    attributor = made.attributor()
    gpus = {"GPU-0": [GpuProcess(10)]}
    assert attributor.refresh(gpus, known)["GPU-0"][0].holder is None
    made.opens(10, 5, "runs/a/results.csv")
    made.now_s += 40
    assert attributor.refresh(gpus, known)["GPU-0"][0].holder == "node1:/a"


def test_the_same_folder_with_another_training_is_another_place(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10)
    place = made.place("node1:/a", {"folder": "runs/a", "writers": [10]})
    attributor = made.attributor()
    gpus = {"GPU-0": [GpuProcess(10)]}
    assert attributor.refresh(gpus, [place])["GPU-0"][0].holder == "node1:/a"
    assert attributor.refresh(gpus, [place._replace(place="node1:/a#2")])["GPU-0"][0].holder == "node1:/a#2"
    assert attributor.refresh(gpus)["GPU-0"][0].holder is None


def test_a_user_gets_a_name_when_the_file_does(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10, {"uid": 2000})
    attributor = made.attributor()
    gpus = {"GPU-0": [GpuProcess(10)]}
    assert attributor.refresh(gpus)["GPU-0"][0].user == "uid:2000"
    with (tmp_path / "passwd").open("a") as file:
        file.write("\nbroken\n:::\nzoe:x:2000:1::/:/bin/sh\n")
    assert attributor.refresh(gpus)["GPU-0"][0].user == "zoe"
    (tmp_path / "passwd").unlink()
    assert attributor.refresh(gpus)["GPU-0"][0].user == "uid:2000"


class Broken:
    """A source that fails."""

    rank: ClassVar[int] = 1

    def claims(self, scene: Scene) -> dict[Held, Claim]:
        raise RuntimeError(f"it broke at {scene.now_s}")


def test_a_source_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10)
    attributor = Attributor(
        {"broken": Broken(), **sources_of()}, node="node1", proc=made.proc, passwd=tmp_path / "passwd", host_pids=True
    )
    assert attributor.refresh({"GPU-0": [GpuProcess(10)]})["GPU-0"][0].user == "ana"
    assert attributor.counts["broken", "failed"] == 1


def test_the_order_in_which_sources_are_believed() -> None:
    found = sources_of()
    order = sorted(found, key=lambda name: found[name].rank)
    assert order == ["slurm_map", "dcgm_hpc", "kubernetes", "environment", "workdir", "user"]


def test_settings_of_sources() -> None:
    assert "kubernetes" not in sources_of({"kubernetes": None})
    assert sources_of({"slurm_map": {"folder": "/x"}})["slurm_map"].folder == "/x"  # type: ignore[attr-defined]
    with pytest.raises(BadConfig, match="no source 'slurm'"):
        sources_of({"slurm": {}})
    with pytest.raises(BadConfig, match=r"attribution\.slurm_map\.path"):
        sources_of({"slurm_map": {"path": "/x"}})


# laws -----------------------------------------------------------------------------------------------------------

RATIOS = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 1), st.just(1e-9))


@given(st.lists(st.lists(RATIOS, min_size=1, max_size=4), min_size=1, max_size=20))
def test_shares_always_add_up(runs: list[list[float | None]]) -> None:
    active = [active_micro(ratios) for ratios in runs]
    shares = split_micro(active)
    assert sum(shares) == WHOLE_MICRO
    assert len(shares) == len(runs)
    assert min(shares) >= 0
    if None in active or not sum(value or 0 for value in active):
        assert max(shares) - min(shares) <= 1
    else:
        total = sum(value or 0 for value in active)
        assert all(abs(share * total - WHOLE_MICRO * (value or 0)) < total for share, value in zip(shares, active, strict=True))


PIDS = st.integers(-3, 12)


@given(
    gpus=st.dictionaries(
        st.sampled_from(["GPU-0", "GPU-1", "MIG-2", "../etc", ""]),
        st.one_of(st.none(), st.lists(st.tuples(PIDS, st.none(), RATIOS), max_size=6)),
        max_size=4,
    ),
    parents=st.lists(st.integers(0, 12), min_size=10, max_size=10),
    jobs=st.lists(st.sampled_from(["", "77", "78", "x"]), min_size=10, max_size=10),
    writers=st.lists(st.sets(st.integers(1, 12), max_size=3), min_size=3, max_size=3),
    text=st.text(max_size=20),
    host=st.booleans(),
)
def test_any_node_is_billed_in_full(
    tmp_path_factory: pytest.TempPathFactory, gpus: Any, parents: Any, jobs: Any, writers: Any, text: str, host: bool
) -> None:
    """Whatever processes, parents (circles too), jobs and files: no error, all shares, the same answer again."""
    made = Made(tmp_path_factory.mktemp("node"))
    for pid, (parent, job) in enumerate(zip(parents, jobs, strict=True), start=2):
        made.process(pid, {"parent": parent, "env": {"SLURM_JOB_ID": job}, "cwd": "runs/p1" if pid == 3 else "runs"})
    known = [made.place(f"node1:/p{at}", {"folder": f"runs/p{at}", "writers": pids}) for at, pids in enumerate(writers)]
    (made.folder / "gpustat" / "GPU-0").write_bytes(text.encode("utf-8", "surrogatepass"))
    attributor = made.attributor(host_pids=host)
    asked = {uuid: None if processes is None else [GpuProcess(*one) for one in processes] for uuid, processes in gpus.items()}
    found = attributor.refresh(asked, known)
    assert found.keys() == asked.keys()
    for uuid, holders in found.items():
        assert sum(holder.share_micro for holder in holders) == WHOLE_MICRO
        listed = asked[uuid]
        empty = listed is not None and not any(process.pid > 0 for process in listed)
        assert empty == (holders[0].attribution_source == "idle")
        keys = [(holder.holder, holder.user, holder.team) for holder in holders]
        assert len(set(keys)) == len(keys)
    assert attributor.refresh(asked, known) == found
