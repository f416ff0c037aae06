"""What this machine has of what some tests need, found out without gemmlab.

A test is skipped where the machine lacks a GPU or a framework, and for no other reason: what
gemmlab cannot do makes it fail.
"""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@cache
def without_gpu() -> str:
    """Why kernels cannot run on a GPU here; "" where they can."""
    from cuda.bindings import driver

    try:
        (error,) = driver.cuInit(0)
    except RuntimeError:
        return "there is no NVIDIA driver"
    if int(error):
        return f"there is no GPU: {error.name}"
    return "" if _is_installed("cuda.core") else "cuda-core is not installed"


@cache
def without_native_tier() -> str:
    """Why the emulator's native tier cannot run here; "" where it can."""
    if not _is_installed("llvmlite"):
        return "llvmlite is not installed"
    if platform.machine() != "x86_64":
        return f"a processor of type {platform.machine()}"
    flags = Path("/proc/cpuinfo").read_text().split()
    return "" if {"avx2", "fma"} <= set(flags) else "a processor without AVX2 and FMA"


@cache
def without_sandbox() -> str:
    """Why processes cannot be confined here; "" where they can."""
    if not without_bubblewrap() or not without_landlock():
        return ""
    return f"{without_landlock()}, and {without_bubblewrap()}"


@cache
def without_bubblewrap() -> str:
    """Why bubblewrap cannot confine a process; "" where it can."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    tried = subprocess.run([program, "--unshare-all", "--ro-bind", "/", "/", "true"], check=False)
    return f"bubblewrap failed with {tried.returncode}" if tried.returncode else ""


@cache
def without_landlock() -> str:
    """Why the kernel cannot confine a process; "" where it can."""
    version = ctypes.CDLL(None).syscall(444, None, 0, 1)  # landlock_create_ruleset
    return "" if version >= 3 else "the kernel has no Landlock of version 3"


@cache
def browser() -> str | None:
    """The path of an installed Chromium; None without one."""
    return (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it
        return False


_HAS_GPU = (pytest.mark.gpu, pytest.mark.skipif(bool(without_gpu()), reason=without_gpu()))
needs_native = pytest.mark.skipif(bool(without_native_tier()), reason=without_native_tier())

needs_torch = pytest.mark.skipif(not _is_installed("torch"), reason="torch is not installed")
needs_sandbox = pytest.mark.skipif(bool(without_sandbox()), reason=without_sandbox())
needs_bubblewrap = pytest.mark.skipif(bool(without_bubblewrap()), reason=without_bubblewrap())
needs_landlock = pytest.mark.skipif(bool(without_landlock()), reason=without_landlock())
# Tests that make system calls by their numbers.
needs_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason=platform.machine())
needs_browser = pytest.mark.skipif(
    browser() is None, reason="there is no Chromium: apt install chromium"
)


def needs_gpu(test: Callable[..., None]) -> Callable[..., None]:
    """A test of the tier `gpu`, skipped where there is no GPU."""
    for mark in _HAS_GPU:
        test = mark(test)
    return test


def sample(cases: Iterable[Any]) -> list[Any]:
    """Parameters for a test, of which the fast tier takes every fourth: the others are slow."""
    return [case if i % 4 == 0 else _slow(case) for i, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)


DEVICES = ("emulated", pytest.param("cuda", marks=_HAS_GPU))
TIERS = ("numpy", pytest.param("native", marks=needs_native))
