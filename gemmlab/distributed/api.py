"""`gemmlab.distributed.matmul` and `plan`. PyTorch is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemmlab.distributed import links, placements, planning, plans
from gemmlab.distributed.links import Machine
from gemmlab.distributed.plans import Plan
from gemmlab.errors import InputError


def matmul(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    out: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    precision: str | None = None,
    out_placements: Sequence[Any] | None = None,
    overlap: bool | None = None,
    devices: Sequence[Any] | None = None,
    sharded: bool = False,
    memory: int | None = None,
    progress: Callable[[float], object] | None = None,
) -> Any:
    """Compute alpha·a·b + beta·c of DTensors, or alpha·a·b of host arrays on several GPUs.

    With DTensors, all processes of the mesh call it. A new form of operands is first compared on
    all of them. Operands move as `plan` says; products of shards run on `gemmlab.matmul`. The
    result depends on the mesh in its last bits, and is the same in every run. Gradients have the
    placements of their operands, Replicate where these are Partial.

    Args:
        a: (…, m, k), a float32 DTensor placed by Shard, Replicate or Partial("sum"); with
            `devices`, a matrix on the host, of NumPy or PyTorch, larger than a GPU if need be.
        b: (…, k, n), likewise; a DTensor on the same mesh.
        c: a float32 DTensor, broadcasts to the result, and requires `beta`.
        out: a DTensor (…, m, n) that receives the result, in its placements; with `devices`, a
            matrix on the host.
        alpha: factor of a·b, 1 by default.
        beta: factor of c, required with `c`.
        precision: as for `gemmlab.matmul`.
        out_placements: of the result, one per dimension of the mesh. None chooses those that need
            the least communication, which may be Partial.
        overlap: whether a transfer overlaps with the product; None decides by predicted time.
        devices: GPUs of this process for arrays on the host, such as [0, 1] or ["cuda:0"]; "cpu"
            for a trial. The arrays stream through them in blocks.
        sharded: with `devices`, leave the result there.
        memory: bytes that may be used of each device; None is most of what is free.
        progress: gets the fraction that is done; None draws a bar on a terminal.

    Returns:
        `out`, or a new DTensor; with `devices`, an array of the library of `a`, or for `sharded` a
        list of tensors, one per device, with the rows of the result in turn.

    Raises:
        ShapeError: shapes do not match, or differ between processes; then nothing was moved.
        DTypeError: a DTensor is not float32.
        ArrayError: an operand is no DTensor or, with `devices`, not on the host; or `out` is given
            where gradients are recorded.
        DeviceError: one of `devices` does not exist.
        InputError: options of DTensors with `devices`, or the other way round.
        PlacementError: a placement that cannot be; the message says which can.
        PeerError: another process ended or does not answer within the timeout of its group.
        GemmlabError: otherwise as `gemmlab.matmul`.
    """
    if devices is not None:
        if any(x is not None for x in (c, beta, out_placements, overlap)):
            raise InputError("c, beta, out_placements and overlap are for DTensors: omit devices")
        from gemmlab.distributed import streaming  # imports PyTorch

        given = (sharded, memory, progress)
        return streaming.multiply(a, b, devices, out, alpha, precision, *given)
    if sharded or memory is not None or progress is not None:
        raise InputError("sharded, memory and progress are for host arrays: give devices")
    from gemmlab.distributed import products, sharding  # these import PyTorch

    assert sharding  # registers what PyTorch's own functions need
    return products.multiply(a, b, c, out, alpha, beta, precision, out_placements, overlap)


def plan(
    a: Any,
    b: Any,
    *,
    mesh: Sequence[int] | None = None,
    placed: tuple[str, str] = ("S(0)", "S(0)"),
    out_placements: Any = None,
    machine: Machine | None = None,
    overlap: bool | None = None,
) -> Plan:
    """Plan a product: bytes per link, times, memory of each process, and why. Nothing runs.

    Args:
        a: a DTensor, or the shape of one; the mesh need not exist.
        b: likewise.
        mesh: sizes of the mesh, with shapes; its last dimension is inside a node.
        placed: placements of a and b, with shapes: "S(0),R", one per dimension of the mesh.
        out_placements: of the result: PyTorch's with DTensors, "R" or the like with shapes.
        machine: the model of links, with shapes; None is 8 H200 per node.
        overlap: as for `matmul`.

    Returns:
        A `Plan`. As text it has all of this.

    Raises:
        ShapeError: shapes do not match.
        PlacementError: a placement that cannot be; the message says which can.
        InputError: shapes without a mesh, or a mesh with DTensors.

    Examples:
        >>> import gemmlab.distributed as gd
        >>> found = gd.plan((4096, 4096), (4096, 4096), mesh=(4,))
        >>> found.ways, found.moved
        (('rows',), 62914560)
    """
    if hasattr(a, "device_mesh"):
        if mesh is not None or machine is not None:
            raise InputError("DTensors have a mesh, and `use` sets their machine: give neither")
        from gemmlab.distributed import products  # imports PyTorch

        return products.explain(a, b, out_placements, overlap)
    if not mesh or any(size < 1 for size in mesh):
        raise InputError(f"mesh is {mesh}; shapes need a mesh of one size or more, such as (4,)")
    shape = plans.check_shapes(a, b)
    at = tuple(
        placements.parse(words, len(x), mesh, name)
        for words, x, name in zip(placed, (a, b), "ab", strict=True)
    )
    wanted = out_placements and placements.parse(out_placements, len(shape), mesh, "the result")
    return planning.plan(a, b, mesh, (at[0], at[1]), wanted, machine or links.H200, overlap)
