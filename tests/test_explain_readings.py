"""Hardware readings beside an explanation."""

import copy

import pytest
from explaining import explained, printed

from gemmlab.lab.explain import readings


def test_readings_count_asynchronous_copies_as_loads(monkeypatch):
    documents = copy.deepcopy(readings._documents())
    monkeypatch.setattr(readings, "_documents", lambda: documents)
    before = readings.all_readings("gemm")[0]
    prefix = "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts"
    documents[0]["readings"][0]["counters"] |= {
        f"{prefix}.sum": 10**9,
        f"{prefix}_lookup_hit.sum": 0,
    }
    after = readings.all_readings("gemm")[0]
    assert after.l1_bytes == before.l1_bytes + 32 * 10**9 and after.l1_hit < before.l1_hit


def of_gpus(rungs):
    """Documents of GPUs by name that read rungs by name, of each the sizes and milliseconds."""
    words = ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld", "lts__t_sectors_srcunit_tex_op_read")
    counters = dict.fromkeys((f"{word}.sum" for word in words), 1)
    counters |= {"dram__bytes_read.sum": 64, "dram__bytes_write.sum": 0}
    return [
        {
            "gpu": gpu,
            "readings": [
                {
                    **{"problem": "gemm", "rung": rung, "layout": "row"},
                    "shape": dict.fromkeys("mnk", size),
                    "counters": counters | {"gpu__time_duration.sum": ms * 10**6},
                }
                for rung, of_sizes in read.items()
                for size, ms in of_sizes.items()
            ],
        }
        for gpu, read in rungs.items()
    ]


def test_shapes_that_one_gpu_has_not_read_are_those_of_another(monkeypatch):
    h200 = {"padded": {1024: 4}, "cublas": {1024: 1, 4096: 2}}
    h100 = {"padded": {1024: 5, 4096: 6}, "cublas": {1024: 7, 4096: 8}}
    documents = of_gpus({"NVIDIA H200": h200, "NVIDIA H100 80GB HBM3": h100})
    monkeypatch.setattr(readings, "_documents", lambda: documents)

    def found(gpu):
        read = readings.readings("gemm", "padded", "row", gpu)
        return [(r.device.split()[1], r.rung, r.shape["k"], round(1e3 * r.time_s)) for r in read]

    on_h100 = [("H100", "padded", 1024, 5), ("H100", "padded", 4096, 6)]
    on_h100 += [("H100", "cublas", 1024, 7), ("H100", "cublas", 4096, 8)]
    assert found("NVIDIA H100 80GB HBM3") == on_h100
    on_h200 = [("H200", "padded", 1024, 4), ("H100", "padded", 4096, 6)]
    on_h200 += [("H200", "cublas", 1024, 1), ("H100", "cublas", 4096, 8)]
    assert found("H200") == found("A100") == on_h200
    largest = readings.largest("gemm", "padded", "row", "H200")
    assert (
        largest
        and largest.device == "NVIDIA H100 80GB HBM3"
        and largest.tflops == 2 * 4096**3 / 6e9
    )

    text = printed(explained("padded", 1024, 1024, 1024), 100)
    of_h200, of_h100 = text.split("measured, NVIDIA H200")[1].split("measured, NVIDIA H100")
    assert "padded 1024×1024×1024" in of_h200 and "4096" not in of_h200
    assert "cublas 4096×4096×4096" in of_h100 and "1024×1024×1024" not in of_h100.split("\n\n")[0]


@pytest.mark.slow
def test_a_reading_at_the_shape_is_drawn_below_the_roof():
    text = printed(explained("float4", 1024, 1024, 1024), 100)
    assert "m  measured on NVIDIA H200, 255 FLOP/byte of device memory: 11.4 TFLOPS" in text
    assert "17.0% of the FP32 peak" in text
    assert "66.9 │" in text and any("m" in line and "│" in line for line in text.splitlines())
    assert explained("float4", 64, 64, 64).measured[0].tflops == pytest.approx(11.4, rel=0.01)


@pytest.mark.slow
def test_a_reading_of_several_launches_has_the_peak_of_tensor_cores(monkeypatch):
    read = {"wgmma": {64: 1}, "cublas": {64: 2}}
    monkeypatch.setattr(readings, "_documents", lambda: of_gpus({"NVIDIA H200": read}))
    found = explained("wgmma", 64, 64, 64)
    own, other = found.as_json()["measured"]
    assert (own["rung"], own["peak_tflops"]) == ("wgmma", pytest.approx(989.5 / 3))
    assert (other["rung"], other["peak"], other["peak_tflops"]) == ("cublas", "FP32 peak", 66.9)
    [line] = [x for x in printed(found, 200).splitlines() if x.startswith("m  measured")]
    assert line.endswith("% of the 16-bit peak of tensor cores ÷ 3 products")
