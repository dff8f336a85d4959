"""The configurations of docs/migration, as they stand there."""

import os
import pathlib
import re
import subprocess

import pytest

from conftest import PATIENCE_S

PAGES = sorted((pathlib.Path(__file__).parents[2] / "docs/migration").glob("*.md"))
BLOCKS = [
    pytest.param(block, id=page.stem)
    for page in PAGES
    for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S)
]


def test_there_is_one_for_each_page():
    assert len(BLOCKS) == len(PAGES) - 1, "all but the first page"


@pytest.mark.parametrize("block", BLOCKS)
def test_a_configuration_is_one(block, tmp_path):
    """The server reads it, and prints what it says."""
    path = tmp_path / "quintet.toml"
    path.write_text(block)
    command = [os.environ.get("QUINTET", "quintet"), "serve", "--config", path, "--print-config"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert told.returncode == 0, told.stderr
    for line in re.findall(r"^(\w+) = .*$", block, re.M):
        assert re.search(rf"^{line} = ", told.stdout, re.M), line
