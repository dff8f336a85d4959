"""What is scraped, as Prometheus' own tool reads it."""

import re
import subprocess
import urllib.request

from conftest import until
from pymemcache.client.base import Client


def scraped(server, accept):
    host = f"127.0.0.1:{server.ports['http']}"
    request = urllib.request.Request(f"http://{host}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def test_promtool_finds_nothing(start):
    server = start("--listen", "memcache=127.0.0.1:0", "--listen", "http=127.0.0.1:0")
    client = Client(server.address)
    for queue in ["mail", "odd\"name", "back\\slash"]:
        client.set(queue, b"x", noreply=False)
    assert client.get("mail") == b"x"
    _, text = scraped(server, "text/plain")
    found = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", ""), text


def test_a_histogram_ends_with_all_of_its_count(start):
    server = start("--listen", "memcache=127.0.0.1:0", "--listen", "http=127.0.0.1:0")
    client = Client(server.address)
    for _ in range(3):
        client.set("mail", b"x", noreply=False)
    labels = 'protocol="memcache",voice="memcache",family="put"'
    total = f"quintet_reply_seconds_count{{{labels}}} 3\n"
    # Who has the answer may ask before it is counted.
    until(lambda: total in scraped(server, "text/plain")[1])
    kind, text = scraped(server, "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
    counts = re.findall(rf"^quintet_reply_seconds_bucket{{{labels},le=.*}} (\d+)$", text, re.M)
    counts = [int(count) for count in counts]
    assert counts == sorted(counts) and counts[-1] == 3
    assert total in text


def test_the_strict_parser_of_openmetrics_reads_all(start):
    from prometheus_client.openmetrics import parser

    server = start("--listen", "memcache=127.0.0.1:0", "--listen", "http=127.0.0.1:0")
    client = Client(server.address)
    for queue in ["mail", "odd\"name", "back\\slash"]:
        client.set(queue, b"x", noreply=False)
    assert client.get("mail") == b"x"
    _, text = scraped(server, "application/openmetrics-text; version=1.0.0")
    names = [family.name for family in parser.text_string_to_metric_families(text)]
    assert len(names) == len(set(names)) > 100
    assert "quintet_connections" in names and "quintet_connections_accepted" in names
