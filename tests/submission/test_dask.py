"""Judging on several machines, by Dask.distributed."""

import pytest
from kernels import gemm

from gemmlab.errors import InputError
from gemmlab.lab.classroom import judging
from gemmlab.lab.classroom.folder import submissions
from gemmlab.lab.directives import Directive
from gemmlab.lab.submission.judging import Options


@pytest.mark.slow
def test_dask_judges_on_its_workers(tmp_path, monkeypatch):
    """A worker's GPU is used by one submission at a time."""
    import distributed

    (tmp_path / "good.cu").write_text(gemm())
    (tmp_path / "fault.cu").symlink_to("good.cu")
    asked, executor = [], distributed.Client.get_executor

    def noted(self, **words):
        asked.append(words)
        return executor(self, **words)

    monkeypatch.setattr(distributed.Client, "get_executor", noted)
    options = Options(gpu=False, seed=1)
    with (
        distributed.LocalCluster(
            n_workers=1, processes=False, dashboard_address=None, resources={"GPU": 1}
        ) as cluster,
        judging.elsewhere(cluster.scheduler_address) as workers,
    ):
        found = judging.judge_all(submissions(tmp_path), Directive(), options, workers, {})
    assert {grade.file: grade.verdict for grade in found} == {
        "good.cu": "pass",
        "fault.cu": "not run",
    }
    assert asked[0]["resources"] == {"GPU": 1}


@pytest.mark.slow
def test_no_scheduler_is_an_error():
    with pytest.raises(InputError, match="no Dask scheduler at"), judging.elsewhere("nonsense://x"):
        pass
