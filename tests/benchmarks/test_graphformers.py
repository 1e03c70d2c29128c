from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.graphformers.jobs import Job
from benchmarks.graphformers.run import rows


def told(job: Job, value: float) -> dict[str, Any]:
    return {"job": asdict(job), "metrics": {"p@1": value}, "seconds": 60, "settings": {}}


def test_peers_are_the_best_cascades_that_read_the_same() -> None:
    jobs = [
        (Job("gf"), 0.2),
        (Job("text", model="text"), 0.9),
        (Job("max", model="max"), 0.3),
        (Job("mean", model="mean"), 0.1),
        (Job("gf ten", num_neighbors=10), 0.5),
        (Job("max ten", model="max", num_neighbors=10), 0.4),
        (Job("gf one", num_neighbors=1), 0.1),
        (Job("gf seed=1", seed=1), 0.4),
        (Job("mean seed=1", model="mean", seed=1), 0.2),
    ]
    found = {row["case"]: row for row in rows({job.name: told(job, value) for job, value in jobs})}
    assert (found["gf"]["peer"], found["gf"]["peer_value"]) == ("best cascade: max", 0.3)
    assert found["gf ten"]["peer_value"] == 0.4
    assert found["gf seed=1"]["peer"] == "best cascade: mean"
    assert "peer" not in found["gf one"]
    mean = found["gf, mean of 2 seeds"]
    assert (mean["value"], mean["seeds"]) == (pytest.approx(0.3), 2)
