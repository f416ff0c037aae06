"""Parses PTX text into a Module: functions with parameters, variables, labels and instructions.

The grammar is that of the PTX ISA manual, chapters 4 (syntax) and 5 (state spaces, types,
variables). Registers and labels of nested `{ }` scopes are renamed to unique names, so later stages
need no scopes.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass, field, replace

from gemmlab.errors import PtxSyntaxError
from gemmlab.ptx.ir import (
    TYPES,
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
    Special,
    Symbol,
    Variable,
    Vector,
)
from gemmlab.ptx.lexer import Tokens
from gemmlab.ptx.locations import Locations, name_sources
from gemmlab.ptx.modifiers import read_opcode
from gemmlab.ptx.opcodes import JUMPS
from gemmlab.ptx.recent import Recent


@dataclass
class Scope:
    """The names declared in one `{ }` scope."""

    suffix: str  # appended to names to make them unique
    registers: dict[str, str] = field(default_factory=dict)  # name -> type
    families: dict[str, tuple[str, int]] = field(default_factory=dict)  # %r -> type, count
    labels: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    seen: dict[str, Reg | None] = field(default_factory=dict)  # cache of lookups


_NUMBERED = re.compile(r"^(.*?)(\d+)$")
_DIRECTIVE_SIZES = {"reqntid", "maxntid", "minnctapersm", "maxnctapersm", "maxnreg"}
_DIRECTIVE_SIZES |= {"reqnctapercluster", "maxclusterrank"}
_LINKAGE = {".visible", ".extern", ".weak", ".common"}


# A module with its translated entries takes about 35 bytes of memory per character of its text. All
# rungs of all ladders fit.
MAX_CHARACTERS, MAX_MODULES = 16 << 20, 1024
MODULES: Recent[str, Module] = Recent(
    MAX_CHARACTERS, lambda text: max(len(text), MAX_CHARACTERS // MAX_MODULES)
)


def parse(text: str) -> Module:
    """Parse PTX text. Modules are cached by text. Raises PtxSyntaxError with the line."""
    return MODULES.get(text, lambda: _parsed(text))


def _parsed(text: str) -> Module:
    parser = Parser(text)
    try:
        return parser.module()
    except RecursionError:
        raise PtxSyntaxError("braces are nested too deeply", parser.line) from None


class Parser(Tokens):
    """A recursive-descent parser for one PTX text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text, self.lines = text, text.split("\n")
        self.files: dict[int, str] = {}
        self.scopes: list[Scope] = []
        self.num_scopes = 0
        self.source: str | None = None
        self.locations = Locations()

    def digest(self) -> str:
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).hexdigest()

    # Module level

    def module(self) -> Module:
        module = Module("", "", {}, [], self.digest())
        while not self.is_done:
            word = self.peek()
            if word == ".version":
                self.next()
                module.version = self.next()
            elif word == ".target":
                self.next()
                module.target = self.next()
                while self.accept(","):
                    self.next()
            elif word == ".address_size":
                self.next()
                if self.integer() != 64:
                    self.fail("only 64-bit addresses are supported")
            elif word == ".file":
                self.file()
            elif word == ".section":
                self.skip_braces()
            elif word in _LINKAGE or word in (".entry", ".func", ".global", ".const", ".shared"):
                self.definition(module)
            elif word in (".alias", ".pragma"):
                while self.next() != ";":
                    pass
            else:
                self.fail(f"unexpected {word!r} at module level")
        if not module.version or not module.target:
            self.fail("no .version and .target directive: this is not PTX")
        for function in module.functions.values():
            name_sources(function.instructions, self.files)
        return module

    def file(self) -> None:
        line = self.line
        self.next()
        number = self.integer()
        self.files[number] = self.next().strip('"')
        while not self.is_done and self.line == line:
            self.next()

    def skip_braces(self) -> None:
        while self.next() != "{":
            pass
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.next(), 0)

    def definition(self, module: Module) -> None:
        extern = False
        while self.peek() in _LINKAGE:
            extern |= self.next() == ".extern"
        if self.peek() in (".entry", ".func"):
            function = self.function()
            if function is not None:
                module.functions[function.name] = function
        else:
            module.variables.append(self.variable(extern))
            self.expect(";")

    def variable(self, extern: bool = False) -> Variable:
        """`.space [.align n] [.vN] .type name[dims] [= init]`, without the `;`."""
        space, alignment, vector, type_, pointer = self.next()[1:], 0, 1, "", False
        while self.peek().startswith("."):
            word = self.next()[1:]
            if word == "align":
                alignment = self.integer()
                if alignment < 1 or alignment & (alignment - 1):
                    self.fail("an alignment must be a power of two")
            elif word in ("v2", "v4"):
                vector = int(word[1])
            elif word == "ptr":
                pointer = True
            elif word == "attribute":  # .attribute(.managed)
                while self.next() != ")":
                    pass
            elif word in TYPES:
                type_ = word
            elif word not in ("global", "shared", "local", "const"):
                self.fail(f"unknown word .{word} in a declaration")
        if not type_:
            self.fail("a declaration needs a type")
        name, count = self.next(), 1
        while self.accept("["):
            count *= 0 if self.peek() == "]" else self.integer()
            self.expect("]")
        width = WIDTHS[type_]
        initial, pointers = self.initializer(width, type_) if self.accept("=") else (b"", [])
        size = width * vector * count
        if len(initial) > size:
            self.fail(f"{name!r} has more initial values than elements")
        if extern and space != "shared":
            self.fail(f"{name!r} is extern, and no PTX is given that defines it")
        # The .align of a pointer parameter is the alignment of its target.
        own = width * vector if pointer else alignment or width * vector
        return Variable(name, space, type_, size, own, pointer, initial, tuple(pointers))

    def initializer(self, width: int, type_: str) -> tuple[bytes, list[tuple[int, Symbol]]]:
        """The initial bytes, zero where addresses belong, and (offset, symbol) of each address."""
        data, pointers = b"", list[tuple[int, Symbol]]()
        if self.accept("{"):
            while not self.accept("}"):
                more, inner = self.initializer(width, type_)
                pointers += [(len(data) + at, symbol) for at, symbol in inner]
                data += more
                self.accept(",")
            return data, pointers
        is_generic = self.peek(1) == "(" and self.accept("generic") and self.accept("(")
        operand = self.operand()
        if is_generic:
            self.expect(")")
        if isinstance(operand, Symbol) and width == 8:
            return bytes(8), [(0, Symbol(operand.name, operand.offset + self.added()))]
        if not isinstance(operand, Imm):
            self.fail("only numbers and 8-byte addresses can initialize a variable")
        if operand.width and type_ in ("f32", "f64"):
            return struct.pack("<f" if type_ == "f32" else "<d", operand.as_float()), []
        return (operand.value % (1 << 8 * width)).to_bytes(width, "little"), []

    # Functions

    def function(self) -> Function | None:
        is_entry = self.next() == ".entry"
        results = self.parameters() if self.peek() == "(" else []
        name = self.next()
        parameters = self.parameters() if self.peek() == "(" else []
        function = Function(name, is_entry, parameters, results)
        while self.peek().startswith("."):
            word = self.next()[1:]
            if word in _DIRECTIVE_SIZES:
                sizes = [self.integer()]
                while self.accept(","):
                    sizes.append(self.integer())
                if word in ("reqntid", "maxntid", "reqnctapercluster"):
                    x, y, z = [*sizes, 1, 1][:3]
                    setattr(function, word, (x, y, z))
                elif word in ("minnctapersm", "maxnreg"):
                    setattr(function, word, sizes[0])
            elif word not in ("noreturn", "explicitcluster", "blocksareclusters", "unique"):
                self.fail(f"unknown directive .{word}")
        if self.accept(";"):
            return None  # a declaration; the definition may follow, or be missing if never called
        self.source = None
        self.pending: list[tuple[Instruction, list[Scope]]] = []
        self.tables: list[tuple[str, int, list[Scope]]] = []
        self.block(function)
        self.resolve_labels(function)
        return function

    def parameters(self) -> list[Variable]:
        self.expect("(")
        found: list[Variable] = []
        while not self.accept(")"):
            if self.peek() not in (".param", ".reg"):
                self.fail(f"expected .param, found {self.peek()!r}")
            found.append(self.variable())
            self.accept(",")
        return found

    def block(self, function: Function) -> None:
        self.expect("{")
        self.scopes.append(Scope(f"#{self.num_scopes}" if self.scopes else ""))
        self.num_scopes += 1
        while not self.accept("}"):
            self.statement(function)
        self.scopes.pop()

    def statement(self, function: Function) -> None:
        word = self.peek()
        if not word:
            self.fail("the text ends inside a function")
        if word == "{":
            self.block(function)
        elif word == ".loc":
            self.location()
        elif word == ".reg":
            self.registers()
        elif word in (".shared", ".local", ".param", ".const", ".global"):
            scope, variable = self.scopes[-1], self.variable()
            scope.variables.add(variable.name)
            function.variables.append(replace(variable, name=variable.name + scope.suffix))
            self.expect(";")
        elif word in (".pragma", ".noreturn"):
            while self.next() != ";":
                pass
        elif word == ";":
            self.next()
        elif self.peek(1) == ":":
            self.label(function)
        else:
            self.instruction(function)

    def location(self) -> None:
        """`.loc file line column [, function_name label, inlined_at file line column]`."""
        line, caller = self.line, None
        self.next()
        place = self.integer(), self.integer(), self.integer()
        while not self.is_done and self.line == line:
            if self.next() == "inlined_at":
                caller = self.integer(), self.integer(), self.integer()
        file, row = self.locations.line(place, caller)
        # Line 0 marks code without a source line; it keeps the previous line.
        if row:
            self.source = f"{file}:{row}"

    def registers(self) -> None:
        self.next()
        type_ = self.next()[1:]
        if type_ not in TYPES:
            self.fail(f"unknown register type .{type_}")
        scope = self.scopes[-1]
        scope.seen.clear()
        while True:
            name = self.next()
            if self.accept("<"):
                scope.families[name] = (type_, self.integer())
                self.expect(">")
            else:
                scope.registers[name] = type_
            if self.accept(";"):
                return
            self.expect(",")

    def label(self, function: Function) -> None:
        name, line = self.next(), self.line
        self.expect(":")
        scope = self.scopes[-1]
        if self.peek() in (".branchtargets", ".calltargets", ".callprototype"):
            directive, targets = self.next(), []
            while (word := self.next()) != ";":
                if word != ",":
                    targets.append(word)
            if directive == ".branchtargets":
                function.branch_targets[name] = targets
                self.tables.append((name, line, list(self.scopes)))
            return
        if name in scope.labels:
            self.fail(f"label {name!r} is defined twice")
        scope.labels.add(name)
        function.labels[name + scope.suffix] = len(function.instructions)

    def instruction(self, function: Function) -> None:
        line = self.line
        guard = None
        if self.accept("@"):
            negated = self.accept("!")
            register = self.lookup(self.next())
            if register is None or register.type != "pred":
                self.fail("the guard of an instruction must be a predicate register")
            guard = Guard(register, negated)
        if self.kind not in ("word", ""):
            self.fail(f"expected an instruction, found {self.peek()!r}")
        opcode = read_opcode(tuple(self.next().split("."))).opcode
        operands: list[Operand] = []
        while not self.accept(";"):
            if operands and not self.accept(","):
                self.fail(f"expected ',' or ';', found {self.peek() or 'the end of the text'!r}")
            operands.append(self.operand())
        text = self.lines[line - 1].strip()
        instruction = Instruction(opcode, tuple(operands), guard, line, text, self.source)
        function.instructions.append(instruction)
        self.pending.append((instruction, list(self.scopes)))

    def resolve_labels(self, function: Function) -> None:
        """Replace branch targets by the unique names of the innermost visible labels."""
        for instruction, scopes in self.pending:
            if instruction.root not in JUMPS:
                continue
            self.check_branch(function, instruction)
            resolved = []
            for operand in instruction.operands:
                if isinstance(operand, Symbol) and operand.name not in function.branch_targets:
                    operand = Symbol(self.unique(operand.name, scopes, instruction.line))
                resolved.append(operand)
            instruction.operands = tuple(resolved)

        for table, line, scopes in self.tables:
            labels = function.branch_targets[table]
            function.branch_targets[table] = [self.unique(x, scopes, line) for x in labels]

    def unique(self, label: str, scopes: list[Scope], line: int) -> str:
        seen = [s.suffix for s in scopes if label in s.labels]
        if not seen:
            raise PtxSyntaxError(f"no label {label!r}", line)
        return label + seen[-1]

    def check_branch(self, function: Function, instruction: Instruction) -> None:
        labels = [o for o in instruction.operands if isinstance(o, Symbol)]
        if instruction.root == "bra" and (len(labels) != 1 or len(instruction.operands) != 1):
            raise PtxSyntaxError("bra needs one label", instruction.line)
        last = instruction.operands[-1:]
        tables = [o for o in labels if o.name in function.branch_targets and (o,) == last]
        if instruction.root == "brx" and (len(tables) != 1 or len(instruction.operands) != 2):
            raise PtxSyntaxError("brx needs an index and a table of labels", instruction.line)

    # Operands

    def lookup(self, name: str) -> Reg | None:
        if not self.scopes:
            return None
        seen = self.scopes[-1].seen
        if name not in seen:
            seen[name] = self.declared(name)
        return seen[name]

    def declared(self, name: str) -> Reg | None:
        numbered = _NUMBERED.match(name)
        for scope in reversed(self.scopes):
            if name in scope.registers:
                return Reg(name + scope.suffix, scope.registers[name])
            if numbered and numbered[1] in scope.families:
                type_, count = scope.families[numbered[1]]
                if int(numbered[2]) < count:
                    return Reg(name + scope.suffix, type_)
        return None

    def operand(self) -> Operand:
        first = self.primary()
        if self.peek() == "|":
            items = [first]
            while self.accept("|"):
                items.append(self.primary())
            return Vector(tuple(items))
        return first

    def primary(self) -> Operand:
        word = self.peek()
        if word in ("{", "("):
            self.next()
            close = "}" if word == "{" else ")"
            items: list[Operand] = []
            while not self.accept(close):
                items.append(self.operand())
                if self.peek() != close:
                    self.expect(",")
            return Vector(tuple(items))
        if word == "[":
            return self.memory()
        if word == "!":
            self.next()
            register = self.lookup(self.next())
            if register is None or register.type != "pred":
                self.fail("'!' needs a predicate register")
            return Negated(register)
        if word == "-" or word[:1].isdigit():
            return self.literal()
        return self.name()

    def literal(self) -> Imm:
        negative = self.accept("-")
        word = self.next()
        try:
            if word[:2] in ("0f", "0F"):
                return Imm(int(word[2:], 16), 4)
            if word[:2] in ("0d", "0D"):
                return Imm(int(word[2:], 16), 8)
            if re.search(r"[.eE]", word) and word[:2] not in ("0x", "0X"):
                value = -float(word) if negative else float(word)
                return Imm(struct.unpack("<Q", struct.pack("<d", value))[0], 8)
            magnitude = int(word.rstrip("U"), 8 if re.fullmatch(r"0[0-7]+U?", word) else 0)
        except ValueError:
            self.position -= 1
            self.fail(f"expected a number, found {word!r}")
        return Imm(-magnitude if negative else magnitude)

    def name(self) -> Reg | Special | Symbol:
        if self.kind != "word":
            self.fail(f"expected an operand, found {self.peek() or 'the end of the text'!r}")
        word = self.next()
        if register := self.lookup(word):
            return register
        if word.startswith("%") or word == "WARP_SZ":
            return Special(word)
        offset = self.added()
        suffixes = [s.suffix for s in self.scopes if word in s.variables]
        return Symbol(word + suffixes[-1] if suffixes else word, offset)

    def added(self) -> int:
        """Parse the constant after an address, such as `+ 8 - 4`."""
        offset = 0
        while self.peek() in ("+", "-"):
            sign = 1 if self.next() == "+" else -1
            offset += sign * self.integer()
        return offset

    def memory(self) -> Memory:
        self.expect("[")
        word = self.peek()
        base: Reg | Symbol | Imm
        if word[:1].isdigit() or word == "-":
            base = Imm(self.integer())
        else:
            found = self.name()
            if isinstance(found, Special):
                self.fail(f"{found.name} is not a declared register and cannot be an address")
            base = found
        offset = self.added()
        coordinates = []
        while self.accept(","):
            coordinates.append(self.operand())
        self.expect("]")
        if isinstance(base, Symbol):
            base, offset = Symbol(base.name), offset + base.offset
        return Memory(base, offset, tuple(coordinates))
