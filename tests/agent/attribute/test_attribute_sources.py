"""Sources by themselves: what files say, files that cannot be used, control groups, and the kubelet's list."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from _made import ANA, NOW_S, Made, load
from hypothesis import given
from hypothesis import strategies as st

from yolometer_agent.attribute._base import GpuProcess
from yolometer_agent.attribute._jobs import pod_of_group
from yolometer_agent.attribute._map_files import MOST_BYTES
from yolometer_agent.attribute.dcgm_hpc import DcgmHpc
from yolometer_agent.attribute.kubernetes import Kubernetes
from yolometer_agent.attribute.kubernetes import given as given_to
from yolometer_agent.attribute.slurm_map import SlurmMap, parse

CASES = Path(__file__).parents[2] / "cases" / "attribute"
GPU = {"GPU-0": (GpuProcess(10),)}
POD = "8d5b2f6e-0c1d-4a53-9c7a-5a1f3f0f4b21"


@pytest.mark.parametrize("case", load(CASES / "slurm_map.yaml"), ids=lambda case: case["about"])
def test_what_a_file_says(case: dict[str, Any]) -> None:
    assert [list(entry) for entry in parse(case["text"], case["uids"])] == case["entries"]


@given(st.text(max_size=200), st.lists(st.integers(0, 99).map(str), max_size=3))
def test_any_text_is_understood_or_left(text: str, uids: list[str]) -> None:
    for entry in parse(text, uids):
        assert entry.job or entry.user
        assert entry.job is None or entry.job.replace("_", "").isascii()


def _bad(path: Path, kind: str) -> None:
    """Make a map file that cannot be used."""
    if kind == "symlink":
        path.with_name("target").write_text(f"77 {ANA}\n")
        path.symlink_to(path.with_name("target"))
    elif kind == "no_file":
        os.mkfifo(path)
    elif kind == "unreadable":
        path.mkdir()
    elif kind == "huge":
        path.write_text(f"77 {ANA}\n" + " " * MOST_BYTES)
    elif kind == "half_written":
        path.write_text("77 10")
        os.utime(path, (NOW_S - 1, NOW_S - 1))
    else:
        raw = {"empty": b"", "binary": b"\x7fELF\0\0\x01", "not_text": b"77 \xff\xfe", "garbled": b"what is this\n"}
        path.write_bytes(raw[kind])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(kind, kind) for kind in ("symlink", "no_file", "huge", "half_written", "empty", "binary", "garbled")]
    + [("unreadable", "no_file"), ("not_text", "binary")],
)
def test_a_file_that_cannot_be_used_is_counted(tmp_path: Path, kind: str, reason: str) -> None:
    made = Made(tmp_path)
    made.process(10)
    _bad(tmp_path / "gpustat" / "GPU-0", kind)
    scene = made.scene(GPU)
    assert SlurmMap(folder=str(tmp_path / "gpustat")).claims(scene) == {}
    assert scene.counts == {("slurm_map", reason): 1}


def test_a_file_without_a_line_end_is_whole_after_a_while(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10, {"ago_s": 1})
    _bad(tmp_path / "gpustat" / "GPU-0", "half_written")
    (tmp_path / "gpustat" / "GPU-0").write_text(f"77 {ANA}")
    os.utime(tmp_path / "gpustat" / "GPU-0", (NOW_S - 30, NOW_S - 30))
    claims = SlurmMap(folder=str(tmp_path / "gpustat")).claims(made.scene(GPU))
    assert [claim.job and claim.job.key for claim in claims.values()] == ["job:slurm::77"]


def test_the_file_of_the_number_counts_when_that_of_the_uuid_cannot_be_used(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10)
    _bad(tmp_path / "gpustat" / "GPU-0", "empty")
    made.file("gpustat/3", f"77 {ANA}\n")
    scene = made.scene(GPU)
    scene.names = {"GPU-0": ("../passwd", "3")}
    assert len(SlurmMap(folder=str(tmp_path / "gpustat")).claims(scene)) == 1
    assert scene.counts == {("slurm_map", "empty"): 1}


def test_no_folder_is_no_fault(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10)
    scene = made.scene(GPU)
    for source in (SlurmMap(folder=str(tmp_path / "none")), DcgmHpc(), DcgmHpc(folder=str(tmp_path / "none"))):
        assert source.claims(scene) == {}
    assert Kubernetes(pods=str(tmp_path / "none"), checkpoint=str(tmp_path / "none")).claims(scene) == {}
    assert not scene.counts


@pytest.mark.parametrize("text", ["rm -rf /;\n", "$(x)\n", "77 {\n"])
def test_ids_that_are_none(tmp_path: Path, text: str) -> None:
    made = Made(tmp_path)
    made.process(10)
    made.file("hpc/GPU-0", text)
    scene = made.scene(GPU)
    assert DcgmHpc(folder=str(tmp_path / "hpc")).claims(scene) == {}
    assert scene.counts == {("dcgm_hpc", "garbled"): 1}


def test_ids_of_another_launcher(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.process(10, {"environ": ""})
    made.file("hpc/GPU-0", "123[4].head\n")
    claims = DcgmHpc(folder=str(tmp_path / "hpc"), launcher="pbs").claims(made.scene(GPU))
    assert [claim.job and claim.job.key for claim in claims.values()] == ["job:pbs::123[4].head"]


@pytest.mark.parametrize("case", load(CASES / "kubernetes.yaml"), ids=lambda case: case["about"])
def test_the_pod_of_a_control_group(case: dict[str, Any]) -> None:
    assert pod_of_group(case["cgroup"]) == case["pod"]


def test_gpus_that_the_kubelet_gave() -> None:
    other = "11111111-0c1d-4a53-9c7a-5a1f3f0f4b21"
    entries = [
        {"PodUID": POD, "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": ["GPU-0"], "1": ["GPU-1::0", "cpu"]}},
        {"PodUID": other, "DeviceIDs": ["GPU-1::1", 7]},
        {"PodUID": other, "DeviceIDs": None},
        {"PodUID": 7, "DeviceIDs": ["GPU-2"]},
        "nothing",
    ]
    found = given_to({"Data": {"PodDeviceEntries": entries}})
    assert {uuid: len(pods) for uuid, pods in found.items()} == {"GPU-0": 1, "GPU-1": 2}
    nothings: list[Any] = [None, [], {}, {"Data": []}, {"Data": {"PodDeviceEntries": {}}}, {"Data": {"PodDeviceEntries": None}}]
    assert not any(map(given_to, nothings))


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.sampled_from(["GPU-0", POD])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["Data", "PodDeviceEntries", "PodUID", "DeviceIDs", "x"]), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_list_of_the_kubelet_is_understood_or_left(said: Any) -> None:
    assert all(uuid.startswith(("GPU-", "MIG-")) for uuid in given_to(json.loads(json.dumps(said))))


@pytest.mark.parametrize("text", ["", "{", '{"Data": ', "\0\0", "[" * 100_000])
def test_a_broken_list_of_the_kubelet_is_counted_and_read_again(tmp_path: Path, text: str) -> None:
    made = Made(tmp_path)
    checkpoint = made.file("checkpoint", text)
    source = Kubernetes(pods=str(tmp_path / "pods"), checkpoint=str(checkpoint))
    scene = made.scene({"GPU-0": (GpuProcess(-1),)}, unseen=frozenset({-1}))
    assert source.claims(scene) == {}
    assert scene.counts == {("kubernetes", "checkpoint_unreadable"): 1}
    entry = {"PodUID": POD, "DeviceIDs": {"-1": ["GPU-0"]}}
    made.file("checkpoint", {"text": json.dumps({"Data": {"PodDeviceEntries": [entry]}}), "age_s": 1})
    assert [claim.job and claim.job.id for claim in source.claims(scene).values()] == [POD.replace("-", "")]
    made.file(f"pods/seeing_late-0_{POD}/x", "")
    assert [claim.job and claim.job.key for claim in source.claims(scene).values()] == ["job:kubernetes:seeing:late-0"]
