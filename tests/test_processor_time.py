"""The fast tier stays fast."""

import gc

import processor_time


def test_an_unmarked_test_must_not_take_long(pytester, monkeypatch, tmp_path):
    monkeypatch.setattr(processor_time, "MOST_S", 0.03)
    monkeypatch.setattr(processor_time, "_CACHE", tmp_path)
    pytester.makeini("[pytest]\nmarkers = slow\n")
    pytester.makepyfile(
        """
        import time

        import processor_time
        import pytest

        def work():
            end = time.process_time() + 0.05
            while time.process_time() < end:
                pass

        fixture = pytest.fixture(work)

        def test_works():
            work()

        def test_has_a_fixture_that_works(fixture):
            pass

        @pytest.mark.slow
        def test_is_marked():
            work()

        def test_sleeps():
            time.sleep(0.05)

        def test_compiles():
            work()
            processor_time._CACHE.touch()
        """
    )
    gc.disable()  # after thousands of tests, a collection takes longer than these tests may
    try:
        done = pytester.runpytest_inprocess("-p", "processor_time")
    finally:
        gc.enable()
    done.assert_outcomes(failed=2, passed=3)
    done.stdout.fnmatch_lines(["*took 0.* s of processor time*", "*mark it with pytest.mark.slow*"])
