"""The commands that move, import and export, against a running network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.network import Network, Receiver, until

SERVERS = 2
TOPIC = "commands"
SUBSCRIPTIONS = 30


def edn(network: Network, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edn.cli", *arguments, "--url", network.url],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def subscribed(network: Network, receiver: Receiver) -> list[dict[str, Any]]:
    answer = network.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer", "s": "string"}})
    assert answer.status_code == 201, answer.text
    bodies = [
        {
            "id": f"sub{number}",
            "topic": TOPIC,
            # "Not equal" is two rectangles, so two rows of one subscription.
            "filter": {"n": {"ne": number}} if number % 2 else {"n": number, "s": {"prefix": "é"}},
            "sink": {"url": receiver.address(f"{number}"), "recipient": f"r{number}"},
            **({"expires": "2999-01-01T00:00:00Z"} if number % 3 == 0 else {}),
            "owner": f"owner{number % 4}",
        }
        for number in range(SUBSCRIPTIONS)
    ]
    answer = network.http.post("/v1/subscriptions", json=bodies)
    assert answer.status_code == 201, answer.text
    assert network.http.post("/v1/subscriptions/sub1/pause").status_code == 200
    return hosted(network)


def hosted(network: Network) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = network.http.get("/v1/subscriptions?limit=1000").json()["subscriptions"]
    return found


def said(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what a network adds by itself."""
    return sorted(
        ({key: value for key, value in one.items() if key not in ("server", "created")} for one in found),
        key=lambda one: one["id"],
    )


def plan(path: Path, rows: dict[str, str]) -> Path:
    """As the Spark job writes it: a folder of Parquet files."""
    path.mkdir()
    pq.write_table(pa.table({"id": list(rows), "server": list(rows.values())}), path / "part-0.parquet")
    return path


def test_a_plan_is_shown_then_applied(
    network: Network, subscribed: list[dict[str, Any]], tmp_path: Path
) -> None:
    wanted = {one["id"]: "s2" if one["server"] == "s1" else "s1" for one in subscribed} | {"gone": "s1"}
    path = plan(tmp_path / "plan", wanted)
    (tmp_path / "plan.report.json").write_text(json.dumps({"after": {"hit_ratio": 0.321}}))
    shown = edn(network, "repartition", "apply", str(path), "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert f"{SUBSCRIPTIONS} subscriptions would move, 0 stay" in shown.stdout
    assert "no longer there: 1 subscription of the plan" in shown.stdout
    assert "expected hit ratio 32.1%" in shown.stdout
    assert hosted(network) == subscribed
    unasked = edn(network, "repartition", "apply", str(path), stdin="")
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    applied = edn(network, "repartition", "apply", str(path), "--yes", "--json")
    assert applied.returncode == 0, applied.stderr
    done = json.loads(applied.stdout)
    assert (done["state"], done["moved"], done["skipped"]) == ("done", SUBSCRIPTIONS, 1)
    assert {one["id"]: one["server"] for one in hosted(network)} | {"gone": "s1"} == wanted
    listed = edn(network, "repartition", "status", "--json")
    assert json.loads(listed.stdout)["repartitions"][0] == done


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"sub1": "s9"}, 'server must be one of s1, s2, got "s9"'),
        (None, "must be Parquet with the columns id and server"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    network: Network,
    subscribed: list[dict[str, Any]],
    tmp_path: Path,
    rows: dict[str, str] | None,
    says: str,
) -> None:
    path = tmp_path / "plan"
    if rows is None:
        path.write_text("nothing")
    else:
        plan(path, rows)
    ran = edn(network, "repartition", "apply", str(path), "--yes")
    assert ran.returncode != 0
    assert says in ran.stderr


def test_a_plan_whose_job_was_killed_while_it_wrote_is_refused(
    network: Network, subscribed: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = plan(tmp_path / "plan", {"sub1": "s2"})
    (path / "_temporary" / "0").mkdir(parents=True)
    ran = edn(network, "repartition", "apply", str(path), "--yes")
    assert ran.returncode == 2
    assert "is incomplete" in ran.stderr


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_is_exported_can_be_imported_again(
    network: Network, subscribed: list[dict[str, Any]], tmp_path: Path, form: str
) -> None:
    path = tmp_path / f"subscriptions.{form}"
    options = ["--json-lines"] if form == "jsonl" else ["--topic", TOPIC]
    exported = edn(network, "export", str(path), *options)
    assert exported.returncode == 0, exported.stderr
    before = said(hosted(network))
    for one in before:
        assert network.http.delete(f"/v1/subscriptions/{one['id']}").status_code == 204
    for _ in range(2):  # the second time changes nothing
        imported = edn(network, "import", str(path), "--json")
        assert imported.returncode == 0, imported.stderr
        told = json.loads(imported.stdout)
        assert (told["subscriptions"], told["paused"], told["expired"]) == (SUBSCRIPTIONS, 1, 0)
    assert said(hosted(network)) == before


def test_advertisements_are_exported_and_imported_with_their_ids(network: Network, tmp_path: Path) -> None:
    for topic in ("imported.alarms", "imported.others"):
        body = {"attributes": {"what": "string", "level": "integer"}, "advertising": "guard"}
        assert network.http.put(f"/v1/topics/{topic}", json=body).is_success
    declared = {
        "alarms": ("imported.alarms", {"what": ["alarm"], "level": [{"gt": 3}, 1]}, "2999-01-01T00:00:00Z"),
        "others": ("imported.others", {"$others": "any"}, None),
    }
    for id, (topic, advertisement, expires) in declared.items():
        new: dict[str, Any] = {"topic": topic, "id": id, "advertisement": advertisement}
        if expires is not None:
            new["expires"] = expires
        assert network.http.post("/v1/advertisements", json=new).status_code == 201

    def shown(id: str) -> dict[str, Any]:
        found = network.http.get(f"/v1/advertisements/{id}").json()
        return {name: found[name] for name in ("topic", "publisher", "advertisement", "expires")}

    before = {id: shown(id) for id in declared}
    path = tmp_path / "all.jsonl"
    exported = edn(network, "export", str(path), "--topic", "imported.**", "--json")
    assert json.loads(exported.stdout) == {"topics": 2, "advertisements": 2, "subscriptions": 0}
    for id, (topic, *_) in declared.items():
        assert network.http.delete(f"/v1/advertisements/{id}").status_code == 204
        assert network.http.delete(f"/v1/topics/{topic}").is_success
    for created in (2, 0):
        imported = edn(network, "import", str(path), "--json")
        assert imported.returncode == 0, imported.stderr
        found = json.loads(imported.stdout)
        assert (found["topics"], found["advertisements"]) == (created, 2)
        assert {id: shown(id) for id in declared} == before
    changed = {"advertisement": {"what": ["other"]}}
    assert network.http.put("/v1/advertisements/alarms", json=changed).is_success
    again = edn(network, "import", str(path))
    assert again.returncode != 0
    assert 'advertisement "alarms" exists with another publisher, topic or content' in again.stderr


def test_a_line_that_is_no_subscription_is_named(network: Network, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text('{"id": "x", "topic": "none", "sink": {"url": "http://127.0.0.1:9/"}}\nnothing\n')
    ran = edn(network, "import", str(path))
    assert ran.returncode == 2
    assert "line 2" in ran.stderr


def test_a_server_is_emptied_and_hosts_again(network: Network, subscribed: list[dict[str, Any]]) -> None:
    drained = edn(network, "server", "drain", "s1")
    assert drained.returncode == 0, drained.stderr
    assert "it may stop" in drained.stdout
    assert {one["server"] for one in hosted(network)} == {"s2"}
    body = {"topic": TOPIC, "id": "new", "sink": {"url": "http://127.0.0.1:9/"}}
    assert network.http.post("/v1/subscriptions", json=body).json()["server"] == "s2"
    refused = edn(network, "server", "forget", "s1")
    assert refused.returncode == 1
    assert "is online: stop it first" in refused.stderr
    added = edn(network, "server", "add", "s1")
    assert added.returncode == 0, added.stderr
    until("its share", lambda: sum(one["server"] == "s1" for one in hosted(network)) >= SUBSCRIPTIONS // 2)
    missing = edn(network, "server", "add", "s7", "--wait", "0.1")
    assert missing.returncode == 1
    assert "python -m edn_server --id s7" in missing.stderr
