"""Launches reach the driver with the arguments that they were planned with."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import fake_driver
import numpy as np
import pytest
from cuda.bindings import driver as cu

import gemmlab
from gemmlab.compile.artifact import Artifact, ParameterType
from gemmlab.errors import DeviceError
from gemmlab.linalg import calls, entry, operands
from gemmlab.linalg.planning import kinds
from gemmlab.linalg.planning.launch import PlannedLaunch, WorkspaceAddresses
from gemmlab.linalg.planning.program import NAMES, Factor, Job, Source
from gemmlab.linalg.planning.tiers import Choice, NotFaster
from gemmlab.linalg.runtime import driver, gpus, graph, launches, products, workspaces
from gemmlab.linalg.runtime.launches import Launcher
from gemmlab.linalg.shapes import Stack

MEMORY = WorkspaceAddresses(1 << 20, 2 << 20, 3 << 20, 4 << 20)
ADDRESSES = (1 << 40, 2 << 40, 3 << 40)  # of a, b and c
REPORTS = range(1 << 24, (1 << 24) + workspaces._SLAB)  # addresses, as `products_of` gives them
TYPES: dict[str, Any] = {"u64": ctypes.c_uint64, "u32": ctypes.c_uint32, "f32": ctypes.c_float}
SHORT = ("m", "n", "k", "vectors", "depth", "pitch", "batch")


def planned(m: int, n: int, k: int) -> tuple[PlannedLaunch, ...]:
    """The launches of a product by default."""
    a, b = Stack(m, k, k, 1).operand(), Stack(k, n, n, 1).transposed.operand()
    assert a is not None and b is not None
    factors = Factor("a", a, "fp16x3", "bf16x6"), Factor("b", b, "fp16x3", "bf16x6")
    job = Job(*factors, Stack(m, n, n, 1), Choice("fp16x3", "", "bf16x6"), alpha=0.5)
    return job.launches(MEMORY, 132)


def artifact_of(launch: PlannedLaunch) -> Artifact:
    """A kernel with the launch's parameters, in another order."""
    maps = [ParameterType("b8", 128, 64, True, "") for _ in launch.maps]
    kinds = {
        name: "f32" if isinstance(value, float) else "u32" if name in SHORT else "u64"
        for name, value in launch.args.items()
    }
    sizes = {"u64": 8, "u32": 4, "f32": 4}
    given = [
        ParameterType(kind, sizes[kind], sizes[kind], True, name)
        for name, kind in sorted(kinds.items())
    ]
    return Artifact(f"matmul_{launch.kernel}", "", "sm_90a", (*maps, *given))


class Driver:
    """Reads the arguments of launches from the host's memory, as the driver does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launched: list[tuple[Any, ...]] = []  # grid, stream, cluster, arguments
        self.maps: dict[bytes, list[Any]] = {}  # encoded: address, shape, strides, box
        self.artifacts: dict[Any, Artifact] = {}
        self.loaded: list[Artifact] = []  # a function's handle is its index
        self.status = 0
        monkeypatch.setattr(launches, "prepare", lambda codes: None)
        monkeypatch.setattr(launches, "loadable", self.artifacts.__getitem__)
        monkeypatch.setattr(launches, "call", lambda function, *args: 1)
        monkeypatch.setattr(launches, "_function", self._load)
        monkeypatch.setattr(driver, "relaxed", contextlib.nullcontext)
        monkeypatch.setattr(gpus, "current", lambda device: contextlib.nullcontext())
        library = SimpleNamespace(
            cuTensorMapEncodeTiled=self._encode, cuLaunchKernelEx=self._launch
        )
        monkeypatch.setattr(driver, "library", lambda: library)

    def _load(self, code: Any, _context: int) -> int:
        self.loaded.append(self.artifacts[code])
        return len(self.loaded) - 1

    def _launch(self, at: Any, function: Any, pointers: Any, extra: Any) -> int:
        assert extra.value is None
        config = cu.CUlaunchConfig(_ptr=at.value)
        artifact = self.loaded[function.value or 0]
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        count = len(artifact.parameters)
        values = arguments(artifact, list((ctypes.c_void_p * count).from_address(pointers.value)))
        attributes = ctypes.c_uint64.from_address(at.value + 40).value
        identifier, _, cluster = (ctypes.c_uint32 * 3).from_address(attributes)
        assert identifier == cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        assert grid[0] % cluster == 0, "CUDA_ERROR_INVALID_CLUSTER_SIZE"
        self.launched.append((grid, int(config.hStream), cluster, values))
        return self.status

    def _encode(self, target: Any, dtype: Any, rank: Any, address: Any, *rest: Any) -> int:
        assert target.value % 64 == 0 and rank.value == 3
        sizes, strides, box, steps = [pointer.value for pointer in rest[:4]]
        encoded = len(self.maps).to_bytes(128, "little")
        ctypes.memmove(target.value, encoded, 128)
        assert list((ctypes.c_uint32 * 3).from_address(steps)) == [1, 1, 1]
        self.maps[encoded] = [
            address.value,
            tuple((ctypes.c_uint64 * 3).from_address(sizes)),
            tuple((ctypes.c_uint64 * 2).from_address(strides)),
            tuple((ctypes.c_uint32 * 3).from_address(box)),
            dtype.value,
        ]
        return self.status

    def decoded(self) -> list[Any]:
        """The launches, with tensor maps as numbers, and with reports at any place."""

        def number(x: Any) -> Any:
            return str(self.maps[x]) if isinstance(x, bytes) else x % 256 if x in REPORTS else x

        return [(*rest, list(map(number, values))) for *rest, values in self.launched]


def arguments(function: Artifact, at: list[Any]) -> list[Any]:
    """The values at these addresses."""
    return [
        ctypes.string_at(address, 128)
        if parameter.ptx_type == "b8"
        else TYPES[parameter.ptx_type].from_address(address).value
        for parameter, address in zip(function.parameters, at, strict=True)
    ]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


@pytest.fixture
def products_of(device: Driver, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Multiply on a fake GPU up to the driver; return the names of driver functions called."""
    asked: list[str] = []

    def call(function: Any, *_: Any) -> int:
        asked.append(function.__name__)
        return len(asked) << 24

    real, loaded = products.TensorCoreRun, Launcher._loaded
    fake_driver.install(monkeypatch)
    monkeypatch.setattr(products, "TensorCoreRun", real)
    monkeypatch.setattr(products, "prepare", lambda codes: None)
    monkeypatch.setattr(products, "is_recording", lambda stream: False)
    monkeypatch.setattr(products, "relaxed", contextlib.nullcontext)
    monkeypatch.setattr(workspaces, "relaxed", contextlib.nullcontext)
    monkeypatch.setattr(workspaces, "call", call)
    monkeypatch.setattr(workspaces, "_workspaces", {})
    monkeypatch.setattr(driver, "call", call)
    monkeypatch.setattr(kinds, "_kinds", {})

    def load(self: Launcher, given: Sequence[PlannedLaunch]) -> Any:
        device.artifacts.update({launch.code: artifact_of(launch) for launch in given})
        return loaded(self, given)

    monkeypatch.setattr(Launcher, "_loaded", load)
    return lambda: asked


@pytest.mark.parametrize(("size", "tier", "launches"), [(600, "tf32x3", 2), (2100, "fp16x3", 4)])
def test_a_new_shape_costs_few_calls_and_makes_no_graph(
    device: Driver, products_of: Callable[[], list[str]], size: int, tier: str, launches: int
) -> None:
    """A stand-in for its time: 830 calls of Python before kinds were planned by formulas."""
    big = np.zeros(2**23, np.float32)

    def matrix(rows: int, columns: int) -> fake_driver.Array:
        return fake_driver.Array(big[: rows * columns].reshape(rows, columns))

    shapes = [(size + 4 * i, size + 8 * i, size + 200 - 8 * i) for i in range(20)]
    for m, n, k in (*shapes, (size + 48, size + 52, size + 100)):
        a, b = matrix(m, k), matrix(k, n)
        device.launched.clear()
        products_of().clear()
        count_of_calls = 0

        def count(frame: Any, event: str, _: Any) -> None:
            nonlocal count_of_calls
            count_of_calls += event == "call" and frame.f_globals["__name__"].startswith("gemmlab.")

        sys.setprofile(count)
        try:
            gemmlab.matmul(a, b)
        finally:
            sys.setprofile(None)
        assert len(device.launched) <= launches and gemmlab.last_plan().tier == tier
    assert count_of_calls < 80
    assert not products_of()


def operands_of(size: tuple[int, int, int], form: str) -> tuple[list[Any], dict[str, Any]]:
    """Operands of a form and options, and room for the result."""
    m, n, k = size
    big = [np.zeros(2**23, np.float32) for _ in "abco"]

    def array(i: int, *shape: int) -> np.ndarray:
        return big[i][: math.prod(shape)].reshape(shape)

    a, b, c, out = array(0, m, k), array(1, k, n), array(2, m, n), array(3, m, n)
    options: dict[str, Any] = {"out": out}
    match form:
        case "a transposed":
            a = array(0, k, m).T
        case "b transposed":
            b = array(1, n, k).T
        case "out transposed":
            options["out"] = array(3, n, m).T
        case "rows with gaps":
            a, options["out"] = array(0, m, k + 4)[:, :k], array(3, m, n + 8)[:, :n]
        case "bias":
            options |= {"c": array(2, n), "beta": 1.0}
        case "scaled":
            options |= {"c": array(2, m, n + 4)[:, :n], "beta": -0.5, "alpha": 2.0}
        case "in place":
            options |= {"c": out, "beta": 1.0}
        case "not read":
            options |= {"c": c, "beta": 0.0}
        case "stack":
            a, options["out"] = array(0, 3, m, k), array(3, 3, m, n)
        case "stacks":
            a, b, options["out"] = array(0, 3, m, k), array(1, 3, k, n), array(3, 3, m, n)
        case "bf16x6":
            options["precision"] = "bf16x6"
    arrays = {id(x): fake_driver.Array(x) for x in (a, b, *options.values()) if hasattr(x, "shape")}
    given = [arrays[id(a)], arrays[id(b)]]
    return given, {name: arrays.get(id(x), x) for name, x in options.items()}


def described(given: list[Any], options: dict[str, Any]) -> Any:
    rest = {"c": None, "alpha": None, "beta": None, "precision": None, **options}
    scalars = operands.check_scalars(given[1], rest["c"], rest["alpha"], rest["beta"])
    arrays = (*given, rest["c"], rest["out"])
    return entry.describe(arrays, scalars, rest["precision"], None)[0]


FORMS = ["plain", "a transposed", "b transposed", "out transposed", "rows with gaps", "bias"]
FORMS += ["scaled", "in place", "not read", "stack", "stacks", "bf16x6"]


@pytest.mark.parametrize("form", FORMS)
def test_the_first_product_of_a_form_gets_the_arguments_that_a_planned_one_gets(
    device: Driver, products_of: Callable[[], list[str]], form: str
) -> None:
    """Of three similar products, the third needs no plan."""
    products_of()
    given, options = operands_of((0, 0, 0), form)
    for size in ((1400, 1500, 1600), (1408, 1508, 1604), (1392, 1492, 1608)):
        given, options = operands_of(size, form)
        device.launched.clear()
        gemmlab.matmul(*given, **options)
    key, plan = calls.form_of(described(given, options)).key, gemmlab.last_plan()
    by_formulas = device.decoded()
    assert plan.tier != "ieee" and key not in calls._planned
    device.launched.clear()
    gemmlab.matmul(*given, **options)
    assert key in calls._planned and device.decoded() == by_formulas
    assert str(plan) == str(gemmlab.last_plan())


@pytest.mark.parametrize("form", FORMS[:-1])
@pytest.mark.usefixtures("slow_multiply_adds")
def test_the_first_product_of_a_form_may_run_in_ieee(
    products_of: Callable[[], list[str]], form: str
) -> None:
    """The third of three shallow ones by formulas, unless c must be copied to `out` first."""
    products_of()
    rng = np.random.default_rng(1)
    for size in ((40, 48, 12), (44, 40, 8), (36, 52, 4)):
        given, options = operands_of(size, form)
        for x in (*given, options.get("c"), options["out"]):
            if x is not None:
                x.values[...] = rng.normal(size=x.shape)
        a, b = (x.values.astype(float) for x in given)
        expected = options.get("alpha", 1.0) * (a @ b)
        if options.get("beta"):
            expected = expected + options["beta"] * options["c"].values
        gemmlab.matmul(*given, **options)
        np.testing.assert_allclose(options["out"].values, expected, rtol=1e-4, atol=1e-4)
    key, plan = calls.form_of(described(given, options)).key, gemmlab.last_plan()
    assert plan.tier == "ieee" and (key in calls._planned) is (form in ("bias", "scaled"))


@pytest.mark.parametrize("adds", ["as fast as cuBLAS", "save two microseconds"])
def test_products_may_be_wanted_only_if_they_are_faster(
    device: Driver,
    products_of: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    adds: str,
) -> None:
    """The first of their like are planned in general. Formulas decide on further ones."""
    if adds == "as fast as cuBLAS":
        request.getfixturevalue("slow_multiply_adds")
    planned: list[Any] = []
    lay_out = operands.lay_out

    def count(*args: Any) -> Any:
        planned.append(args)
        return lay_out(*args)

    monkeypatch.setattr(operands, "lay_out", count)
    shallow = adds == "save two microseconds"
    for depth, launched, in_general in ((1100, True, 2), (12, shallow, 1)):
        for i in range(4):
            size = 1100 + 8 * i
            given, _ = operands_of((size, size, depth), "plain")
            device.launched.clear()
            planned.clear()
            products_of().clear()
            if launched:
                _, saving = entry.faster(*given)
            else:
                with pytest.raises(NotFaster, match=r"^cuBLAS is as fast$"):
                    entry.faster(*given)
            assert bool(device.launched) is launched and "cublasCreate_v2" not in products_of()
            assert bool(planned) is (i < in_general), size
            if launched:
                expected = calls.PlannedProduct(described(given, {"out": None}), 7).saving()
                assert saving() == expected > 0


def test_each_launch_has_its_own_arguments(device: Driver) -> None:
    """Also where kernels are used again, at other shapes, before the first launch runs."""
    launcher = Launcher(0)
    products = [planned(300, 1200, 700), planned(2000, 1200, 700)]
    for launch in (launch for product in products for launch in product):
        device.artifacts[launch.code] = artifact_of(launch)
    bound = [launcher.bind(product) for product in products]
    for product, found in zip(reversed(products), reversed(bound), strict=True):
        device.launched.clear()
        for each in found:
            each.launch(77, ADDRESSES)
        for launch, (grid, stream, cluster, values) in zip(product, device.launched, strict=True):
            assert (grid, stream, cluster) == (launch.grid, 77, launch.cluster)
            maps, numbers = values[: len(launch.maps)], values[len(launch.maps) :]
            args = {
                name: ADDRESSES[NAMES.index(value.name)] if isinstance(value, Source) else value
                for name, value in launch.args.items()
            }
            wanted_numbers = [args[name] for name in sorted(args)]
            assert numbers == [
                ctypes.c_float(x).value if isinstance(x, float) else x for x in wanted_numbers
            ]
            for wanted, encoded in zip(launch.maps, maps, strict=True):
                address, shape, strides, box, dtype = device.maps[encoded]
                assert (address, shape, strides) == (wanted.address, wanted.shape, wanted.strides)
                assert box == (64, wanted.copy.lines, 1)
                names = {"float16": "FLOAT16", "bfloat16": "BFLOAT16"}
                name = f"CU_TENSOR_MAP_DATA_TYPE_{names[wanted.copy.dtype]}"
                assert dtype == getattr(cu.CUtensorMapDataType, name)


def test_a_graph_changes_only_nodes_that_use_an_address_that_moved(device: Driver) -> None:
    product, changed = planned(300, 1200, 700), list[tuple[int, list[Any]]]()
    for launch in product:
        device.artifacts[launch.code] = artifact_of(launch)

    def set_params(_graph: Any, handle: Any, at: Any) -> int:
        which = handle.value or 0
        artifact = device.artifacts[product[which].code]
        pointers = int(cu.CUDA_KERNEL_NODE_PARAMS(_ptr=at.value).kernelParams)
        count = len(artifact.parameters)
        values = arguments(artifact, list((ctypes.c_void_p * count).from_address(pointers)))
        changed.append((which, values))
        return device.status

    driver.library().cuGraphExecKernelNodeSetParams_v2 = set_params
    nodes = [graph.Node(bound, i) for i, bound in enumerate(Launcher(0).bind(product))]
    for node in nodes:
        node.move(ctypes.c_void_p(), (0, 0, 0), (0, 0, 3 << 40))
    using_c = [i for i, launch in enumerate(product) if "c" in launch.args]
    assert [which for which, _ in changed] == using_c and len(using_c) == 2
    for which, values in changed:
        names = [x.name for x in device.artifacts[product[which].code].parameters]
        assert values[names.index("c")] == 3 << 40
        given = product[which].args.items()
        expected = {x: ctypes.c_float(y).value if isinstance(y, float) else y for x, y in given}
        for name, value in zip(names, values, strict=True):
            assert name in ("", "c", "d") or value == expected[name]  # d is c
    device.status = 1
    with pytest.raises(DeviceError, match="cuGraphExecKernelNodeSetParams: CUDA_ERROR_INVALID_V"):
        nodes[using_c[0]].move(ctypes.c_void_p(), (0, 0, 3 << 40), (0, 0, 2 << 40))


@pytest.mark.parametrize("failing", ["cuTensorMapEncodeTiled", "cuLaunchKernelEx"])
def test_errors_of_the_driver_are_named(device: Driver, failing: str) -> None:
    product = planned(300, 1200, 700)
    for launch in product:
        device.artifacts[launch.code] = artifact_of(launch)
    if failing == "cuTensorMapEncodeTiled":
        device.status = 1
        with pytest.raises(DeviceError, match=r"cuTensorMapEncodeTiled at 0x\w+: CUDA_ERROR_INV"):
            Launcher(0).bind(product)
        return
    (first, *_) = Launcher(0).bind(product)
    device.status = 1
    with pytest.raises(DeviceError, match="cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE"):
        first.launch(77, ADDRESSES)
