"""Specification table, launch limits and the occupancy model."""

import pytest

from gemmlab.errors import LaunchError, UnknownNameError
from gemmlab.hardware import ARCHITECTURES, GPUS, architecture, check_launch, occupancy, specs


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_peaks_follow_from_clock_and_lanes(gpu):
    peak = 2 * gpu.sms * architecture(gpu.arch).fp32_lanes * gpu.boost_mhz * 1e-6
    assert gpu.fp32_tflops == pytest.approx(peak, rel=0.01)
    assert gpu.source


@pytest.mark.parametrize("arch", ARCHITECTURES.values(), ids=lambda arch: arch.name)
def test_architectures_are_consistent(arch):
    assert arch.smem_per_block + arch.smem_reserved == arch.smem_per_sm
    assert arch.warps_per_sm in (32, 48, 64)
    assert 16 <= arch.blocks_per_sm <= 32


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_100a", "sm_80"])
def test_architecture_specific_names_are_the_same_hardware(arch):
    assert architecture(arch).name == arch.rstrip("a")


@pytest.mark.parametrize("arch", ["sm_99", "compute_90", "", "90"])
def test_unknown_architectures_name_those_there_are(arch):
    with pytest.raises(UnknownNameError, match="sm_90"):
        architecture(arch)


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "smem", "blocks", "limiter"),
    [
        ("sm_90", 1024, 32, 0, 2, "warps"),
        ("sm_90", 1024, 33, 0, 1, "registers"),  # 33·32 rounds up to 1280 per warp
        ("sm_90", 1024, 64, 0, 1, "registers"),
        ("sm_90", 1024, 65, 0, 0, "registers"),
        ("sm_90", 256, 128, 8192, 2, "registers"),
        ("sm_90", 256, 255, 0, 1, "registers"),
        ("sm_90", 32, 16, 0, 32, "blocks"),
        ("sm_90", 256, 32, 48 * 1024, 4, "shared memory"),  # 49 KB each with the reserved 1 KB
        ("sm_90", 128, 32, 227 * 1024, 1, "shared memory"),
        ("sm_80", 256, 128, 8192, 2, "registers"),
        ("sm_86", 1024, 32, 0, 1, "warps"),
        ("sm_75", 1024, 64, 0, 1, "warps"),
        ("sm_90", 33, 32, 0, 32, "warps"),
    ],
)
def test_occupancy(arch, threads, registers, smem, blocks, limiter):
    found = occupancy(arch, threads, registers, smem)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)
    warps = blocks * -(-threads // 32)
    assert found.warps_per_sm == warps
    assert found.fraction == warps / architecture(arch).warps_per_sm


@pytest.mark.parametrize(("threads", "registers", "smem"), [(0, 1, 0), (1025, 1, 0), (1, 256, 0)])
def test_occupancy_refuses_what_cannot_run(threads, registers, smem):
    with pytest.raises(LaunchError):
        occupancy("sm_90", threads, registers, smem)


@pytest.mark.parametrize(
    ("grid", "block", "smem"),
    [
        ((1, 1, 1), (1, 1, 1), (0, 0)),
        ((2**31 - 1, 65535, 65535), (1024, 1, 1), (0, 0)),
        ((1, 1, 1), (4, 4, 64), (49152, 0)),
        ((1, 1, 1), (32, 32, 1), (1024, 226 * 1024)),
    ],
)
def test_launches_at_the_limits_are_accepted(grid, block, smem):
    check_launch("sm_90a", grid, block, *smem)


@pytest.mark.parametrize(
    ("grid", "block", "smem", "told"),
    [
        ((1, 1, 1), (5000, 1, 1), (0, 0), "block.x = 5000.*1024"),
        ((1, 1, 1), (33, 32, 1), (0, 0), "1056 threads.*1024"),
        ((1, 1, 1), (1, 1, 65), (0, 0), "block.z = 65.*64"),
        ((0, 1, 1), (1, 1, 1), (0, 0), "grid.x = 0"),
        ((2**31, 1, 1), (1, 1, 1), (0, 0), "grid.x = 2147483648"),
        ((1, 65536, 1), (1, 1, 1), (0, 0), "grid.y = 65536.*65535"),
        ((1, 1, 65536), (1, 1, 1), (0, 0), "grid.z"),
        ((1, 1), (1, 1, 1), (0, 0), "2 dimensions"),
        ((1, 1, 1), (1, 1, 1), (49153, 0), "49153 bytes of static.*49152"),
        ((1, 1, 1), (1, 1, 1), (1, 227 * 1024), "dynamic.*232448 on sm_90a"),
        ((1, 1, 1), (1, 1, 1), (0, -1), "-1 bytes"),
    ],
)
def test_launches_past_a_limit_state_values_and_rule(grid, block, smem, told):
    with pytest.raises(LaunchError, match=told):
        check_launch("sm_90a", grid, block, *smem)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("cuda:0 NVIDIA H200", "H200"),
        ("cuda:0 NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ("cuda:1 NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("cuda:0 NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("cuda:0 NVIDIA H100 PCIe", None),
        ("emulated", None),
    ],
)
def test_a_product_is_found_by_the_name_of_its_device(device, name):
    found = specs.gpu(device)
    assert (found.name if found else None) == name


def test_a_block_whose_registers_do_not_fit_is_refused():
    check_launch("sm_90a", (1, 1, 1), (1024, 1, 1), registers=64)
    with pytest.raises(LaunchError, match="1024 threads of 128 registers each do not fit"):
        check_launch("sm_90a", (1, 1, 1), (1024, 1, 1), registers=128)


@pytest.mark.parametrize("name", ["H100", "a100-80gb", "rtx2080ti", "RTX 2080", "V100"])
def test_a_product_is_found_by_its_first_words(name):
    plain = "".join(filter(str.isalnum, name.lower()))
    found = "".join(filter(str.isalnum, specs.product(name).name.lower()))
    assert found.startswith(plain)


@pytest.mark.parametrize("name", ["A10", "H20", "RTX 20", "4090", ""])
def test_another_product_is_not_taken_for_one_that_is_known(name):
    """NVIDIA's A10 and H20 exist, and are not in the table."""
    with pytest.raises(UnknownNameError, match="no GPU"):
        specs.product(name)
