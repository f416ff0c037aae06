"""Memory accesses of one instruction each: vectors, asynchronous copies, predicated stores.

Through `cute`, the compiler traces such an instruction as ten to ninety operations, each of which
takes time. These functions build on the dialects below `cute`, and make the same instructions.
"""

from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, cute
from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm, vector


def aligned(pointer: cute.Pointer, count: int) -> cute.Pointer:
    """The same pointer, known to be aligned to `count` elements."""
    size, address = pointer.value_type.width // 8, pointer.toint()
    return cute.make_ptr(pointer.value_type, address, pointer.memspace, assumed_align=count * size)


def elements_of(values: Any, element: Any, count: int) -> list:
    """The elements of a vector."""
    return [element(vector.extract(values, [], [e])) for e in range(count)]


def read(pointer: cute.Pointer, count: int) -> list:
    """Elements by one load. The address must be a multiple of their size."""
    element = pointer.value_type
    kind = ir.VectorType.get([count], element.mlir_type)
    size = count * element.width // 8
    return elements_of(llvm.load(kind, pointer.llvm_ptr, alignment=size), element, count)


@cute.jit
def read_if(inside: cutlass.Boolean, pointer: cute.Pointer) -> Float32:
    """An element, or 0 if not `inside`."""
    value = Float32(0)
    if inside:
        (value,) = read(pointer, 1)
    return value


def read_remote(pointer: cute.Pointer, block: Int32) -> list:
    """Four floats at the same address in the shared memory of another block of the cluster."""
    return read(cute.arch.map_dsmem_ptr(pointer, block), 4)


def write(pointer: cute.Pointer, values: list) -> None:
    """Store elements by one instruction. The address must be a multiple of their size."""
    element = type(values[0])
    kind = ir.VectorType.get([len(values)], element.mlir_type)
    whole = vector.from_elements(kind, [value.ir_value() for value in values])
    llvm.store(whole, pointer.llvm_ptr, alignment=len(values) * element.width // 8)


def write_if(inside: cutlass.Boolean, pointer: cute.Pointer, value: Float32) -> None:
    """Store an element to device memory if `inside`: by a predicate, which is no branch."""
    given = [pointer.toint(), value.bitcast(Int32)]
    cute.arch.inline_ptx("st.global.b32 [{$r0}], {$r1};", read_only_args=given, predicate=inside)


def copy_bytes(
    source: Int64, target: cute.Pointer, size: int, inside: Any = None, around_l1: bool = False
) -> None:
    """One cp.async of 4 or 16 bytes to shared memory; if not `inside`, it writes zeros.

    source: an address in device memory. Copies of 16 bytes may bypass L1.
    """
    cache, given, last = "cg" if around_l1 else "ca", [target.toint(), source], ""
    if inside is not None:
        given.append(cutlass.select_(inside, Int32(size), Int32(0)))
        last = ", {$r2}"
    text = f"cp.async.{cache}.shared.global [{{$r0}}], [{{$r1}}], {size}{last};"
    cute.arch.inline_ptx(text, read_only_args=given)


def copy_part(source: Int64, target: cute.Pointer, size: Int32) -> None:
    """One cp.async of up to 16 bytes to shared memory, which zeros complete to 16. It bypasses L1.

    source: a multiple of 16. It is not read if the size is 0.
    """
    text = "cp.async.cg.shared.global [{$r0}], [{$r1}], 16, {$r2};"
    cute.arch.inline_ptx(text, read_only_args=[target.toint(), source, size])


def either(condition: cutlass.Boolean, first: Float32, second: Float32) -> Float32:
    """The first number if the condition holds, else the second one."""
    return Float32(cutlass.select_(condition, first, second))
