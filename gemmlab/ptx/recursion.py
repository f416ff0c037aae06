"""Turns directly or mutually recursive functions into subroutines with a stack.

All other functions are inlined. A recursive function has one copy, placed before the kernel's code,
so that the lanes of a warp reconverge after the call, as they do on hardware. The stack is in local
memory. A frame holds the number of the return address, results, arguments, local variables, and the
registers that are live across a call that may re-enter the function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from gemmlab.errors import UnsupportedInstructionError
from gemmlab.ptx.ir import (
    WIDTHS,
    Function,
    Guard,
    Imm,
    Instruction,
    Memory,
    Module,
    Negated,
    Operand,
    Reg,
    Symbol,
    Variable,
    Vector,
)
from gemmlab.ptx.modifiers import read_opcode
from gemmlab.ptx.opcodes import ENDS, JUMPS, is_arithmetic

# Minimum stack size per thread, in bytes and in frames. CUDA's default is 1 KiB.
STACK_BYTES, LEAST_DEPTH = 16 << 10, 8
STACK = Variable("stack@", "local", "b8", STACK_BYTES, 16)
OVERFLOW = "stack@overflow"  # the function called on a stack overflow
CALL = "call@"  # pseudo-instruction: calls a subroutine; operands are name, results, arguments
HEADER = 16  # bytes in a frame before its variables
FRAME, NEXT, LIMIT = (Reg(f"{name}@", "b64") for name in ("frame", "next", "limit"))
FULL, PLACE, BIT = Reg("full@", "pred"), Reg("place@", "b32"), Reg("bit@", "b32")
SPACE = "local::frame"  # local memory whose accesses are not counted: arguments, saved registers


def callee_of(module: Module, instruction: Instruction) -> Function | None:
    """The function that a call names; None if the module does not define it."""
    if instruction.root != "call":
        return None
    names = [o.name for o in instruction.operands if isinstance(o, Symbol)]
    return module.functions.get(names[0]) if names else None


def pointer_of(instruction: Instruction) -> Reg | None:
    """The register with the target of a call through a pointer; None for other instructions."""
    if instruction.root != "call":
        return None
    return next((o for o in instruction.operands if isinstance(o, Reg)), None)


def symbols(operand: Operand) -> list[str]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return [o.name for o in items if isinstance(o, Symbol)]


def takes(function: Function, call: Instruction) -> bool:
    """Whether the numbers of results and arguments of a call through a pointer match a function."""
    pointer = pointer_of(call)
    assert pointer is not None
    place = call.operands.index(pointer)
    results, arguments = call.operands[:place], call.operands[place + 1 : place + 2]
    given = tuple(sum(len(symbols(o)) for o in part) for part in (results, arguments))
    return given == (len(function.results), len(function.parameters))


def reachable(module: Module, candidates: Sequence[Function]) -> dict[str, set[str]]:
    """For each function, all functions that a call of it may reach.

    candidates: the functions whose address is taken.
    """
    calls: dict[str, set[str]] = {}
    for function in module.functions.values():
        calls[function.name] = set()
        for i in function.instructions:
            callee = callee_of(module, i)
            if callee is not None:
                calls[function.name].add(callee.name)
            elif pointer_of(i) is not None:
                calls[function.name] |= {f.name for f in candidates if takes(f, i)}
    found = {name: set(direct) for name, direct in calls.items()}
    changed = True
    while changed:
        changed = False
        for reached in found.values():
            more = set().union(*(found[other] for other in reached)) - reached
            if more:
                reached |= more
                changed = True
    return found


@dataclass
class Body:
    """A subroutine or the kernel, with all non-recursive calls inlined."""

    function: Function
    formals: tuple[Variable, ...] = ()  # results and parameters
    frame: dict[str, int] = field(default_factory=dict)  # variable -> offset in the frame
    kept: dict[str, tuple[Reg, int]] = field(default_factory=dict)  # saved registers and offsets
    live: list[set[Reg]] = field(default_factory=list)  # live registers after each instruction
    size: int = 0  # bytes of a frame; 0 for the kernel

    @property
    def name(self) -> str:
        return self.function.name


def subroutine(function: Function, formals: tuple[Variable, ...]) -> Body:
    """Lay out the frame of a function: formals and local variables."""
    body = Body(function, formals)
    body.size = HEADER
    for v in (*formals, *(v for v in function.variables if v.space == "local")):
        body.size = -(-body.size // v.alignment) * v.alignment
        body.frame[v.name] = body.size
        body.size += v.size
    return body


class Linker:
    """Combines the kernel and its subroutines into one function."""

    def __init__(self, kernel: Function, bodies: dict[str, Body], reached: dict[str, set[str]]):
        self.bodies, self.reached = bodies, reached
        self.kernel = Body(kernel)
        self.result = replace(kernel, variables=[], instructions=[], labels={}, branch_targets={})
        self.returns: dict[str, list[str]] = {name: [] for name in bodies}
        self.num_addresses = 0

    def link(self) -> Function:
        for body in self.bodies.values():
            body.live = live_registers(body.function)
            self._make_room(body)
        declared = [v for body in (self.kernel, *self.bodies.values()) for v in _own(body)]
        largest = max(body.size for body in self.bodies.values())
        stack = replace(STACK, size=max(STACK_BYTES, LEAST_DEPTH * largest))
        self.result.variables = [*{v.name: v for v in declared}.values(), stack]
        first = Instruction(("ret",), (), None, 1, "", None)
        if self.kernel.function.instructions:
            first = self.kernel.function.instructions[0]
        self._add(first, "bra", Symbol("start@"))
        for body in self.bodies.values():
            self._place(f"enter@{body.name}")
            self._copy(body)
            self._return(body, first)
        self._place("start@")
        self._add(first, "mov.u64", FRAME, Symbol(stack.name))
        self._add(first, "add.u64", LIMIT, FRAME, Imm(stack.size - largest))
        self._copy(self.kernel)
        for name, labels in self.returns.items():
            self.result.branch_targets[f"returns@{name}"] = labels
        return self.result

    def _make_room(self, body: Body) -> None:
        """Reserve space in the frame for registers that are live after a call that may re-enter the
        function."""
        code = body.function.instructions
        for index, i in enumerate(code):
            if i.root == CALL and self._comes_back(body, i):
                for register in body.live[index]:
                    if register.name not in body.kept:
                        width = _width(register, i)
                        body.size = -(-body.size // width) * width
                        body.kept[register.name] = register, body.size
                        body.size += width
        body.size = -(-body.size // STACK.alignment) * STACK.alignment

    def _comes_back(self, body: Body, call: Instruction) -> bool:
        return body.name in self.reached.get(_name(call), ())

    def _copy(self, body: Body) -> None:
        function = body.function
        labels: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            labels.setdefault(index, []).append(label)
        self.result.branch_targets |= function.branch_targets
        for index, i in enumerate(function.instructions):
            for label in labels.get(index, ()):
                self._place(label)
            if i.root == CALL:
                self._call(body, i, body.live[index] if body.live else set())
            elif i.root == "ret" and body is not self.kernel:
                self._return(body, i)
            else:
                self._instruction(body, i)
        for label in labels.get(len(function.instructions), ()):
            self._place(label)

    def _place(self, label: str) -> None:
        self.result.labels[label] = len(self.result.instructions)

    def _add(
        self, origin: Instruction, opcode: str, *operands: Operand, guard: Guard | None = None
    ) -> None:
        words = tuple(opcode.split("."))
        self.result.instructions.append(
            replace(origin, opcode=words, operands=operands, guard=guard)
        )

    def _move(self, origin: Instruction, root: str, width: int, *operands: Operand) -> None:
        """Add a load or store in a frame."""
        self._add(origin, f"{root}.{SPACE}.b{8 * width}", *operands)

    def _return(self, body: Body, i: Instruction) -> None:
        guard = i.guard
        self._add(i, f"ld.{SPACE}.b32", PLACE, Memory(FRAME, 0), guard=guard)
        self._add(i, "brx.idx", PLACE, Symbol(f"returns@{body.name}"), guard=guard)

    def _call(self, body: Body, i: Instruction, live: set[Reg]) -> None:
        callee = self.bodies[_name(i)]
        results, arguments = (symbols(o) for o in i.operands[1:])
        formals = dict(zip([*results, *arguments], callee.formals, strict=True))
        kept = [
            body.kept[r.name] for r in sorted(live, key=lambda r: r.name) if r.name in body.kept
        ]
        kept = kept if self._comes_back(body, i) else []
        self._add(i, "add.u64", NEXT, FRAME, Imm(body.size))
        self._add(i, "setp.gt.u64", FULL, NEXT, LIMIT)
        self._add(i, "call", Symbol(OVERFLOW), Vector(()), guard=Guard(FULL, False))
        for actual in arguments:
            self._pass(body, i, actual, callee, formals[actual], gives=True)
        for register, offset in kept:
            self._keep(i, register, offset)
        self._add(i, "mov.u64", FRAME, NEXT)
        labels = self.returns[callee.name]
        self._move(i, "st", 4, Memory(FRAME, 0), Imm(len(labels)))
        labels.append(f"back@{callee.name}@{len(labels)}")
        self._add(i, "bra", Symbol(f"enter@{callee.name}"))
        self._place(labels[-1])
        self._add(i, "sub.u64", FRAME, FRAME, Imm(body.size))
        for register, offset in kept:
            self._restore(i, register, offset)
        for actual in results:
            self._pass(body, i, actual, callee, formals[actual], gives=False)

    def _pass(
        self, body: Body, i: Instruction, actual: str, callee: Body, formal: Variable, gives: bool
    ) -> None:
        """Copy an argument to the callee's frame (`gives`), or a result from it."""
        width = min(formal.alignment, 8)
        for offset in range(0, formal.size, width):
            here: Memory = Memory(Symbol(actual), offset)
            word = "param"
            if actual in body.frame:
                here, word = Memory(FRAME, body.frame[actual] + offset), SPACE
            there = Memory(FRAME, body.size + callee.frame[formal.name] + offset)
            register = Reg(f"passed@{width}", f"b{8 * width}")
            source, target = (
                ((here, word), (there, SPACE)) if gives else ((there, SPACE), (here, word))
            )
            for root, (place, space) in (("ld", source), ("st", target)):
                operands = (register, place) if root == "ld" else (place, register)
                opcode = (root, space, f"b{8 * width}")
                self.result.instructions.append(
                    replace(i, opcode=opcode, operands=operands, guard=None)
                )

    def _keep(self, i: Instruction, register: Reg, offset: int) -> None:
        if register.type == "pred":
            self._add(i, "selp.b32", BIT, Imm(1), Imm(0), register)
            register = BIT
        self._move(i, "st", _width(register, i), Memory(FRAME, offset), register)

    def _restore(self, i: Instruction, register: Reg, offset: int) -> None:
        target = BIT if register.type == "pred" else register
        self._move(i, "ld", _width(target, i), target, Memory(FRAME, offset))
        if register.type == "pred":
            self._add(i, "setp.ne.u32", register, BIT, Imm(0))

    def _instruction(self, body: Body, i: Instruction) -> None:
        """Copy an instruction, replacing the addresses of variables by addresses in the frame."""
        local = {v.name for v in body.function.variables if v.name in body.frame}
        opcode, operands = i.opcode, list[Operand]()
        for o in i.operands:
            name = o.base.name if isinstance(o, Memory) and isinstance(o.base, Symbol) else ""
            if isinstance(o, Memory) and name in body.frame:
                o = Memory(FRAME, body.frame[name] + o.offset, o.coordinates)
                space = "local" if name in local else SPACE
                words = [w for w in opcode[1:] if w.split("::")[0] not in ("param", "local")]
                opcode = read_opcode((opcode[0], space, *words)).opcode
            elif isinstance(o, Symbol) and o.name in local:
                self.num_addresses += 1
                address = Reg(f"address@{self.num_addresses}", "b64")
                self._add(i, "add.u64", address, FRAME, Imm(body.frame[o.name] + o.offset))
                o = address
            operands.append(o)
        self.result.instructions.append(replace(i, opcode=opcode, operands=tuple(operands)))


def _own(body: Body) -> list[Variable]:
    """The variables outside the frame."""
    return [v for v in body.function.variables if v.name not in body.frame]


def _name(call: Instruction) -> str:
    return symbols(call.operands[0])[0]


def _width(register: Reg, i: Instruction) -> int:
    width = 4 if register.type == "pred" else WIDTHS[register.type]
    if width > 8:
        message = f"unsupported: 128-bit register {register.name} is live after a recursive call"
        raise UnsupportedInstructionError(message, i.site)
    return width


def _registers(operands: Iterable[Operand]) -> set[Reg]:
    found: set[Reg] = set()
    for o in operands:
        match o:
            case Reg():
                found.add(o)
            case Negated():
                found.add(o.reg)
            case Memory():
                found |= _registers([o.base, *o.coordinates])
            case Vector():
                found |= _registers(o.items)
    return found


def live_registers(function: Function) -> list[set[Reg]]:
    """For each instruction, the registers that are live after it."""
    code = function.instructions
    reads: list[set[Reg]] = []
    writes: list[set[Reg]] = []
    for i in code:
        writing = (is_arithmetic(i.root) or i.root == "ld") and i.guard is None and bool(i.operands)
        reads.append(_registers(i.operands[1:] if writing else i.operands))
        writes.append(_registers(i.operands[:1]) if writing else set())
        if i.guard is not None:
            reads[-1].add(i.guard.reg)
    live: list[set[Reg]] = [set() for _ in code]
    before: list[set[Reg]] = [set() for _ in (*code, None)]
    changed = True
    while changed:
        changed = False
        for index in reversed(range(len(code))):
            after: set[Reg] = set().union(*(before[k] for k in _next(function, index)))
            now = reads[index] | (after - writes[index])
            if now != before[index] or after != live[index]:
                before[index], live[index], changed = now, after, True
    return live


def _next(function: Function, index: int) -> list[int]:
    """Indices of the instructions that may execute next."""
    i = function.instructions[index]
    targets = []
    if i.root in JUMPS:
        for name in (o.name for o in i.operands if isinstance(o, Symbol)):
            labels = function.branch_targets.get(name, [name])
            targets += [function.labels[label] for label in labels]
    ends = i.root in ENDS and i.guard is None
    return targets if ends else [*targets, index + 1]
