"""What `gemmlab distributed measure` runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gemmlab.distributed as gd
from gemmlab.distributed import measuring
from mesh_checks.common import Mesh, check


@check
def measuring_products(mesh: Mesh, _: Mesh | None) -> None:
    """What `gemmlab distributed measure` runs, small."""
    if mesh.device_type != "cpu":
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        bench = measuring.Bench("cpu", path)
        bench.fit([16, 32])
        gd.use(None)  # the forms of other checks are planned with the built-in links
        bench.rows_by_rows(32)
        bench.other_cases(16)
        bench.programs(16)
        assert not [row for row in bench.rows if "failed" in row], bench.rows
        assert len(bench.rows) == 25
        assert all(row["error"] is None or row["error"] < 10 for row in bench.rows)
        ours = [row for row in bench.rows if row["by"].startswith("gemmlab") and row["error"]]
        assert all(row["predicted"] > 0 for row in ours)
        repeat, plain = [row for row in bench.rows if "timeline" in row]
        assert [[e["what"] for e in events] for events in plain["timeline"]] == [
            ["wait", "multiply"]
        ] * mesh.size()
        assert repeat["bits_repeat"] and len(repeat["timeline"]) == mesh.size()
        for events in repeat["timeline"]:
            assert {event["what"] for event in events} == {"multiply", "wait"}
            assert all(0 <= event["start"] <= event["end"] for event in events)
        assert path.exists() == (mesh.get_rank() == 0)
