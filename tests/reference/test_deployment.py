"""What `deploy/` holds names only what exists, and is taken by the tools that read it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

import dispatcher.config
import edn_server.config
from dispatcher.api.admin.metrics import METRICS as OF_DISPATCHER
from edn_server.observe.metrics import METRICS as OF_SERVER
from tests.programs import require

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HISTOGRAMS = ("edn_server_post_seconds", "edn_server_delivery_seconds")
KNOWN = {metric.name for metric in (*OF_DISPATCHER, *OF_SERVER)} | {f"{name}_bucket" for name in HISTOGRAMS}


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bedn_(?:dispatcher|server)_[a-z_]+", text))


@pytest.mark.parametrize("file", ["prometheus/alerts.yml", "prometheus/alerts_test.yml", "grafana/edn.json"])
def test_rules_and_panels_ask_for_metrics_that_exist(file: str) -> None:
    asked = {name.removesuffix("_") for name in metrics_in((DEPLOY / file).read_text())}
    assert asked
    assert asked - KNOWN - set(HISTOGRAMS) == set()


def test_the_dashboard_file_is_whole() -> None:
    dashboard = json.loads((DEPLOY / "grafana/edn.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) >= 8
    assert all(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])


@pytest.mark.parametrize(
    "arguments",
    [
        # The key that it names is where Prometheus runs.
        ["check", "config", "--syntax-only", "prometheus/prometheus.yml"],
        ["check", "rules", "prometheus/alerts.yml"],
        ["test", "rules", "prometheus/alerts_test.yml"],
    ],
)
def test_promtool_takes_the_rules(arguments: list[str]) -> None:
    promtool = require("promtool")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, cwd=DEPLOY)
    assert done.returncode == 0, done.stdout + done.stderr


def test_units_and_compose_set_variables_that_exist() -> None:
    page = (DEPLOY.parent / "docs/operating.md").read_text()
    texts = [path.read_text() for path in [*DEPLOY.glob("systemd/*.service"), DEPLOY / "compose.yaml"]]
    used = {name for text in texts for name in re.findall(r"\b(EDN_[A-Z_]+)", text)}
    assert len(used) >= 8
    assert {name for name in used if f"`{name}" not in page} == set()


Settings = dict[str, tuple[str, str]]
Checked = Callable[[str, list[str], dict[str, str]], Settings]


@pytest.fixture
def checked(capsys: pytest.CaptureFixture[str]) -> Checked:
    """What a service would make of its settings: flag → (value, where it comes from); it must take them."""
    classes = {"dispatcher": dispatcher.config.Settings, "edn_server": edn_server.config.Settings}

    def check(module: str, arguments: list[str], environment: dict[str, str]) -> Settings:
        assert find_spec(f"{module}.__main__") is not None
        with pytest.raises(SystemExit) as ended:
            classes[module].load([*arguments, "--check-config"], environment)
        assert ended.value.code == 0
        lines = (line.split() for line in capsys.readouterr().out.splitlines())
        return {flag: (value, origin) for flag, value, origin in lines}

    return check


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


@pytest.mark.parametrize("service", ["dispatcher1", "dispatcher2", "s1", "s2", "s3"])
def test_a_service_takes_what_compose_gives_it(service: str, checked: Checked) -> None:
    described = compose()["services"][service]
    python, dash, module = described["command"]
    assert (python, dash) == ("python", "-m")
    found = checked(module, [], described["environment"])
    prefix = "EDN_SERVER_" if module == "edn_server" else "EDN_"
    set_there = {name.removeprefix(prefix).lower().replace("_", "-") for name in described["environment"]}
    from_there = {flag for flag, (_, origin) in found.items() if origin == "environment"}
    assert set_there == from_there


def test_compose_names_what_is_there() -> None:
    document = compose()
    services = document["services"]
    own = {name: one for name, one in services.items() if "build" in one}
    for one in own.values():
        context = DEPLOY / one["build"]["context"]
        assert context.resolve() == ROOT
        assert (context / one["build"]["dockerfile"]).is_file()
        [database] = {one["environment"].get(name) for name in ("EDN_DATABASE", "EDN_SERVER_DATABASE")} - {
            None
        }
        assert urlsplit(database).hostname in services
        assert "volumes" not in one, "its state is in the database"
        assert set(one.get("depends_on", ())) <= services.keys()
        assert set(one["secrets"]) <= document["secrets"].keys()
        files = [value for name, value in one["environment"].items() if name.endswith("SECRET_FILE")]
        assert files == ["/run/secrets/network"]
    ports = [port.split(":")[0] for one in services.values() for port in one.get("ports", ())]
    assert len(ports) == len(set(ports))
    mounted = {volume.split(":")[0] for volume in services["prometheus"]["volumes"]}
    assert all((DEPLOY / folder).is_dir() for folder in mounted)


def test_prometheus_asks_every_service_of_compose_where_it_listens() -> None:
    asked = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in asked for one in job["static_configs"] for target in one["targets"]}
    services = {name: one for name, one in compose()["services"].items() if "build" in one}
    ports = {name: one["environment"].get("EDN_SERVER_PORT", "8080") for name, one in services.items()}
    assert targets == {f"{name}:{port}" for name, port in ports.items()}


def test_prometheus_asks_everybody_with_a_key_for_metrics_only() -> None:
    asked = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    document = compose()
    given = [f"/run/secrets/{name}" for name in document["services"]["prometheus"]["secrets"]]
    assert {job["job_name"] for job in asked} == {"edn-dispatcher", "edn-server"}
    for job in asked:
        assert [job["authorization"]["credentials_file"]] == given
    assert document["services"]["dispatcher1"]["environment"]["EDN_SECRET_FILE"] not in given


def test_docker_takes_the_compose_file() -> None:
    program = shutil.which("docker")
    if program is None:
        pytest.skip("docker is not installed")
    command = [program, "stack", "config"]
    if subprocess.run([*command, "--help"], capture_output=True).returncode != 0:
        pytest.skip("this docker reads no compose file by itself")
    command += ["--compose-file", str(DEPLOY / "compose.yaml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["services"].keys() == compose()["services"].keys()


def test_the_secret_of_compose_comes_into_no_image_and_no_commit() -> None:
    files = [one["file"] for one in compose()["secrets"].values()]
    assert len(files) == 2
    for file in files:
        path = (DEPLOY / file).resolve().relative_to(ROOT).as_posix()
        assert path in (ROOT / ".dockerignore").read_text().splitlines()
        assert f"/{path}" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("unit", ["edn-dispatcher.service", "edn-server@.service"])
def test_whoever_fails_is_started_again_unless_that_cannot_help(unit: str) -> None:
    text = (DEPLOY / "systemd" / unit).read_text()
    assert "Restart=on-failure\n" in text
    [never] = re.findall(r"^RestartPreventExitStatus=(.+)$", text, re.MULTILINE)
    # 1 is also what Python ends with after an error that nobody foresaw, and 4 asks for it.
    assert set(never.split()) == ({"2", "3"} if "server" in unit else {"2"})


def test_the_image_holds_what_the_services_import() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copied = {source for line in lines if line.startswith("COPY ") for source in line.split()[1:-1]}
    assert all((ROOT / source).exists() for source in copied)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not copied & set(ignored)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages <= copied, "an editable install would leave them out"
    assert {project["project"]["readme"], *project["project"]["license-files"]} <= copied
    assert {"requirements.lock", "pyproject.toml"} <= copied
    [base] = [line.split(":")[1] for line in lines if line.startswith("FROM python:")]
    least = project["project"]["requires-python"].removeprefix(">=")
    assert [*map(int, base.split("-")[0].split("."))] >= [*map(int, least.split("."))]
    modules = {name for line in lines for name in re.findall(r"python -m ([\w.]+)", line)}
    assert modules
    assert all(find_spec(name) is not None for name in modules)


@pytest.mark.parametrize("unit", ["edn-dispatcher.service", "edn-server@.service"])
def test_a_service_takes_what_its_unit_gives_it(unit: str, checked: Checked) -> None:
    text = (DEPLOY / "systemd" / unit).read_text().replace("%i", "s1")
    given = [line.partition("=")[2] for line in text.splitlines() if line.startswith("Environment=")]
    environment = dict(pair.split("=", 1) for line in given for pair in shlex.split(line))
    # What the unit leaves to /etc/edn, and a server cannot do without.
    environment |= {"EDN_SERVER_DISPATCHER": "http://10.0.0.1:8080"} if "server" in unit else {}
    [module] = re.findall(r"^ExecStart=\S+ -m (\w+)$", text, re.MULTILINE)
    found = checked(module, [], environment)
    state = re.findall(r"^StateDirectory=(\S+)$", text, re.MULTILINE)
    assert found["data"] == (f"/var/lib/{state[0]}", "environment"), "the only folder that it may write to"
    assert found["secret-file"] == ("/etc/edn/secret", "environment")


@pytest.mark.parametrize(("module", "section"), [("dispatcher", "dispatcher"), ("edn_server", "server")])
def test_a_service_takes_the_example_of_a_settings_file(module: str, section: str, checked: Checked) -> None:
    file = DEPLOY / "edn.toml"
    found = checked(module, ["--config-file", str(file)], {})
    written = tomllib.loads(file.read_text())
    assert {flag for flag, (_, origin) in found.items() if origin == "file"} == {
        *written["network"],
        *written[section],
    }


def test_compose_is_one_network() -> None:
    services = compose()["services"]
    servers = {name: one for name, one in services.items() if "edn_server" in one.get("command", ())}
    assert len(servers) >= 2
    for name, one in servers.items():
        assert one["environment"]["EDN_SERVER_ID"] == name
        for url in one["environment"]["EDN_SERVER_DISPATCHER"].split(","):
            assert re.fullmatch(r"http://(\w+):8080", url)[1] in services  # type: ignore[index]


def cluster() -> Any:
    return yaml.safe_load((DEPLOY / "cluster/compose.yaml").read_text())


def test_the_cluster_has_no_single_point_of_failure_and_no_volumes_of_its_own() -> None:
    services = cluster()["services"]
    nodes = [name for name, one in services.items() if "PATRONI_NAME" in one.get("environment", {})]
    of = {
        module: {name: one for name, one in services.items() if module in one.get("command", ())}
        for module in ("dispatcher", "edn_server")
    }
    assert len(nodes) == 3
    assert len(of["dispatcher"]) == 2
    assert len(of["edn_server"]) == 4
    spares = [name for name, one in of["edn_server"].items() if not one["environment"]["EDN_SERVER_ID"]]
    assert spares == ["spare"]
    assert {one["environment"]["EDN_NAME"] for one in of["dispatcher"].values()} == set(of["dispatcher"])
    for name, one in (*of["dispatcher"].items(), *of["edn_server"].items()):
        assert "volumes" not in one, f"{name} has no state"
        assert set(one["depends_on"]) == set(nodes)
        url = next(value for key, value in one["environment"].items() if key.endswith("DATABASE"))
        assert set(re.fullmatch(r"postgresql://edn@([\w,]+)/edn", url)[1].split(",")) == set(nodes)  # type: ignore[index]
    for name in nodes:
        assert services[name]["environment"]["PATRONI_NAME"] == name
    patroni = yaml.safe_load((DEPLOY / "cluster/patroni.yaml").read_text())
    assert patroni["bootstrap"]["dcs"]["synchronous_mode_strict"] is True
    for config in cluster()["configs"].values():
        assert (DEPLOY / "cluster" / config["file"]).exists()


def pods() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, container and labels of the pods of the Kubernetes manifests."""
    for document in manifests():
        if document["kind"] in ("StatefulSet", "Deployment"):
            template = document["spec"]["template"]
            [container] = template["spec"]["containers"]
            yield document["metadata"]["name"], container, template["metadata"]["labels"]


def manifests() -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes/edn.yaml").read_text()))


def test_services_take_the_environment_of_their_containers(checked: Checked) -> None:
    for name, one in cluster()["services"].items():
        module = next((part for part in one.get("command", ()) if part in ("dispatcher", "edn_server")), None)
        if module is not None:
            found = checked(module, [], one["environment"])
            assert found["database"][1] == "environment", name
    for name, container, _ in pods():
        values = {
            one["name"]: one.get("value", "postgresql://db/edn" if "DATABASE" in one["name"] else "10.0.0.9")
            for one in container["env"]
        }
        for _ in range(2):  # Kubernetes replaces the names of variables that come before
            for name_of, text in list(values.items()):
                for other, given in values.items():
                    text = text.replace(f"$({other})", given)
                values[name_of] = text
        found = checked(container["command"][-1], [], values)
        assert found["database"][1] == "environment", name


def test_every_pod_has_probes_and_every_kind_a_disruption_budget() -> None:
    documents = manifests()
    budgets = [one["spec"] for one in documents if one["kind"] == "PodDisruptionBudget"]
    served = [one["spec"]["selector"] for one in documents if one["kind"] == "Service"]
    for name, container, labels in pods():
        [port] = container["ports"]
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"] == {"path": "/livez", "port": port["name"]}, name
        assert container["securityContext"]["runAsNonRoot"] is True
        if labels.get("role") != "spare":
            assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
            matching = [one for one in budgets if one["selector"]["matchLabels"].items() <= labels.items()]
            assert len(matching) == 1, name
        assert any(selector.items() <= labels.items() for selector in served), name


def test_systemd_takes_the_units() -> None:
    program = require("systemd-analyze")
    units = [str(path) for path in DEPLOY.glob("systemd/*.service")]
    done = subprocess.run([program, "verify", *units], capture_output=True, text=True)
    # What it cannot know here is whether the program is installed where the units say.
    said = [line for line in done.stderr.splitlines() if "edn" in line and "not executable" not in line]
    assert said == []
