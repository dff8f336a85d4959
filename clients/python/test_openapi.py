"""The served OpenAPI document is held against the server by schemathesis."""

import os
import subprocess
import sys

from conftest import PATIENCE_S

# All that is asked of answers but that what fits the document is accepted: ids, tokens and cursors
# cannot be made up.
CHECKS = ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]

# For each operation; more with `cargo xtask test --long`.
EXAMPLES = os.environ.get("QUINTET_EXAMPLES", "8")


def test_the_server_answers_as_its_document_says(start, tmp_path):
    server = start("--listen", "http=127.0.0.1:0")
    command = [
        *[sys.executable, "-m", "schemathesis.cli", "run"],
        f"http://127.0.0.1:{server.ports['http']}/api/v1/openapi.json",
        # A stream has no end, and the server is to go on.
        *["--exclude-path-regex", "/events|/server/"],
        *["--phases", "coverage,fuzzing", *CHECKS, "--continue-on-failure"],
        # The same cases each time, however fast the machine is.
        *["--seed", "1", "--generation-database", "none", "--max-examples", EXAMPLES],
        *["--request-timeout", str(PATIENCE_S), "--warnings", "off", "--no-color"],
        # Polls wait for 60 s at most.
        *["--max-response-time", "70"],
    ]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert told.returncode == 0, told.stdout + told.stderr
    assert " generated, " in told.stdout and "0 generated" not in told.stdout, told.stdout
    assert server.process.poll() is None
