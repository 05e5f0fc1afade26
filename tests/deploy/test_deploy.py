"""What is shipped for deployment holds together: compose file, images, configurations, rules, dashboards, units."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from yolometer.services import CONFIGS, check, example
from yolometer_core.config import load, read
from yolometer_core.service import metrics
from yolometer_core.topics import TopicsConfig

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = ("agent", "stream", "sink")


def _compose() -> list[str] | None:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and not subprocess.run([*command, "version"], capture_output=True, check=False).returncode:
            return command
    return None


@pytest.mark.skipif(_compose() is None, reason="docker compose is not installed here; it alone knows all of its own rules")
def test_docker_compose_takes_the_file() -> None:
    command = _compose()
    assert command is not None
    said = subprocess.run([*command, "--profile", "watch", "-f", str(ROOT / "docker-compose.yml"), "config", "--quiet"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert said.returncode == 0, said.stderr


def test_every_image_has_an_exact_version() -> None:
    for name, service in SERVICES.items():
        assert re.search(r":v?\d+\.\d+", service["image"]), name
    for path in ("agent", "stream", "sinks"):
        for line in (ROOT / path / "Dockerfile").read_text().splitlines():
            if line.startswith("FROM"):
                assert re.search(r":\d+\.\d+\.\d+-slim", line), line


def test_every_service_is_watched_and_what_it_mounts_is_there() -> None:
    for name, service in SERVICES.items():
        assert "healthcheck" in service or name in OURS, f"{name} has no health check, and its image brings none"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).exists(), volume
        for waits_for in service.get("depends_on", {}):
            assert waits_for in SERVICES


def test_our_containers_have_no_rights_and_no_root() -> None:
    for name in (*OURS, "topics"):
        service = SERVICES[name]
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and "privileged" not in service
    for path in ("agent", "stream", "sinks"):
        assert "\nUSER yolometer\n" in (ROOT / path / "Dockerfile").read_text()


def test_no_port_is_open_to_other_machines() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_there_is_no_secret_in_what_is_shipped() -> None:
    given = re.compile(r"(?i)(password|secret|token)\w*\"?\s*[:=]\s*[\"']?(?!/run/secrets|null|\[|\s*$|\.)\w")
    for path in [ROOT / "docker-compose.yml", *(ROOT / "deploy").rglob("*")]:
        for line in path.read_text().splitlines() if path.is_file() else []:
            assert not given.search(line), f"{path.name}: {line}"


def test_the_example_of_each_service_is_a_file_that_it_takes(tmp_path: Path) -> None:
    for service in CONFIGS:
        file = tmp_path / f"{service}.yaml"
        file.write_text(example(service))
        assert check(file, None)[0] == service


def test_the_shipped_examples_are_those_of_the_code() -> None:
    for service in OURS:
        assert (ROOT / "deploy" / "config" / f"{service}.yaml").read_text() == example(service), "run `make docs`"


@pytest.mark.parametrize("service", OURS)
def test_the_settings_of_compose_are_right(service: str) -> None:
    path = ROOT / "deploy" / "compose" / f"{service}.yaml"
    assert check(path, None)[0] == service
    known_secret = {"store_password_file"} & set(read(path))
    assert not known_secret or SERVICES[service]["secrets"] == ["clickhouse_password"]


def test_the_topics_of_compose_are_right() -> None:
    assert load(TopicsConfig, ROOT / "deploy" / "compose" / "topics.yaml").partitions > 1


def _metrics_in(text: str) -> set[str]:
    return set(re.findall(r"yolometer_(?:agent|stream|sink)_\w+", text))


@pytest.mark.parametrize("path", ["deploy/prometheus/rules.yml", "deploy/grafana/dashboards/services.json"])
def test_rules_and_dashboards_name_metrics_that_exist(path: str) -> None:
    known = {metrics.full_name(service, each.name) for each in metrics.DEFINITIONS for service in each.services}
    known |= {f"{name}_{end}" for name in known for end in ("bucket", "sum", "count")}
    found = _metrics_in((ROOT / path).read_text())
    assert found and found <= known, found - known


def test_the_dashboard_is_one_that_grafana_can_read() -> None:
    board = json.loads((ROOT / "deploy/grafana/dashboards/services.json").read_text())
    assert board["uid"] and len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 5
    assert all(target["expr"] for panel in board["panels"] for target in panel["targets"])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool of Prometheus is not installed here")
def test_prometheus_takes_the_rules() -> None:
    rules = str(ROOT / "deploy/prometheus/rules.yml")
    said = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("service", OURS)
def test_units_start_the_right_command_and_may_do_little(service: str) -> None:
    unit = (ROOT / "deploy" / "systemd" / f"yolometer-{service}.service").read_text()
    assert f"yolometer {service} --config /etc/yolometer/{service}.yaml" in unit
    assert "NoNewPrivileges=yes" in unit and "ProtectSystem=strict" in unit and "Restart=always" in unit
