"""What CI runs are targets of the Makefile, on the Pythons that pyproject.toml names."""

import re
import tomllib
from typing import Any

import yaml

from tests.meta.project import ROOT

WORKFLOW: Any = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())


def test_each_job_runs_one_target_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M)
    lines = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in WORKFLOW["jobs"].items()}
    assert lines and all(len(each) == 1 for each in lines.values())
    assert {each[0].split()[:1] == ["make"] and each[0].split()[1] in targets for each in lines.values()} == {True}


def test_the_matrix_has_every_python_that_is_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == promised
    assert project["requires-python"] == f">={promised[0]}"
