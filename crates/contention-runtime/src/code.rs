//! The program's own instructions, decoded: those executed between two calls that the compiler's passes made.
//!
//! # Boundary
//! From two return addresses to the operations between them ([`Code::path`]). Knows neither clocks nor caches.
//!
//! # Concurrency
//! As [`crate::state`]; the code of a loaded file does not change.
//!
//! # Why
//! Each block has a call, so the path from one call to the next has a handful of jumps and can be searched.
//! Instructions that exist only because accesses are announced are left out: the calls, the set-up of their arguments, and
//! stack slots that keep registers across them, which are taken for registers. Weakness: a program whose variables
//! live on the stack, as one built without optimisation, is taken for faster than it is; behind a jump through a
//! table, code up to the next block's call is not found.

use crate::state::Table;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use uvfs_coherence::pipeline::{Kind, NOWHERE, Operation};

/// Instructions that a search looks at.
const SEARCHED: usize = 4000;
/// The part of a load's result that its own instruction uses.
const LOADED: u16 = 100;
const FLAGS: u16 = 99;
const SLOTS: u16 = 128;

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Called {
    /// It tells where execution is: a block, an atomic access, a function's entry or exit.
    Point,
    /// It announces an access.
    Access,
    /// Anything else, and where it is when it is known.
    Other(Option<u64>),
}

/// A loaded file that was compiled with the passes.
#[derive(Debug)]
struct Part {
    start: u64,
    end: u64,
    /// Words with the addresses of the passes' functions, sorted; whether they tell where execution is.
    words: Vec<(u64, bool)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Code {
    parts: Vec<Part>,
    info: InstructionInfoFactory,
    /// Addresses that no part covered when it was last looked.
    unknown: Table<u64, ()>,
}

/// The way from one point to another.
#[derive(Debug, Default)]
pub(crate) struct Path {
    pub(crate) operations: Vec<Operation>,
    /// Whether it was found; if not, the operations go up to where the trace is lost.
    pub(crate) found: bool,
    /// It went through a call, into the function: where that returns to.
    pub(crate) returns_to: u64,
    /// It has a branch that can be guessed wrong.
    pub(crate) branches: bool,
}

/// A piece of the search.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u64,
    end: u64,
    before: Option<usize>,
}

/// # Safety
/// The loader calls it, with a record that is valid meanwhile, and `data` is the pointer that [`Code::read`] passed.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader gives a valid record; `data` is the vector that `read` passed.
    let (info, parts) = unsafe { (&*info, &mut *data.cast::<Vec<Part>>()) };
    let mut dynamic = 0;
    let mut loaded = Vec::new();
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the loader gives that many headers.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        match header.p_type {
            libc::PT_DYNAMIC => dynamic = start,
            libc::PT_LOAD if header.p_flags & libc::PF_X != 0 => {
                loaded.push((start, start + header.p_memsz));
            }
            _ => {}
        }
    }
    // SAFETY: the dynamic section of a loaded file, by the loader's own record.
    let words = unsafe { words_of_passes(dynamic, info.dlpi_addr) };
    if words.iter().any(|(_, point)| *point) {
        parts.extend(loaded.into_iter().map(|(start, end)| Part {
            start,
            end,
            words: words.clone(),
        }));
    }
    0
}

/// Words of a file's tables of addresses that are for functions of the passes, sorted.
///
/// # Safety
/// `dynamic` is the address of the dynamic section of a file that is loaded at `bias`, or zero.
unsafe fn words_of_passes(dynamic: u64, bias: u64) -> Vec<(u64, bool)> {
    let mut words = Vec::new();
    if dynamic == 0 {
        return words;
    }
    let mut tags = [0_u64; 32];
    // SAFETY: the section ends with a null tag; tables that it names are loaded and as long as it says, by the
    // format that the loader has relied on; names end in zero.
    unsafe {
        let mut entry = dynamic as *const [u64; 2];
        while (*entry)[0] != 0 {
            if let Some(tag) = tags.get_mut((*entry)[0] as usize) {
                *tag = (*entry)[1];
            }
            entry = entry.add(1);
        }
        // The C library's loader has added the bias to addresses; others leave it.
        let at = |tag: usize| if tags[tag] >= bias { tags[tag] } else { tags[tag] + bias };
        // As `elf.h` numbers them.
        const JUMP_BYTES: usize = 2;
        const NAMES: usize = 5;
        const SYMBOLS: usize = 6;
        const RELA: usize = 7;
        const RELA_BYTES: usize = 8;
        const JUMP: usize = 23;
        for (table, bytes) in [(RELA, RELA_BYTES), (JUMP, JUMP_BYTES)] {
            if tags[table] == 0 || tags[SYMBOLS] == 0 || tags[NAMES] == 0 {
                continue;
            }
            for index in 0..tags[bytes] / 24 {
                let [offset, kind, _] = *((at(table) + index * 24) as *const [u64; 3]);
                let symbol = kind >> 32;
                if symbol == 0 {
                    continue;
                }
                let name = *((at(SYMBOLS) + symbol * 24) as *const u32);
                let name = CStr::from_ptr((at(NAMES) + u64::from(name)) as *const libc::c_char);
                let name = name.to_bytes();
                if name == b"__sanitizer_cov_trace_pc" {
                    words.push((offset + bias, true));
                } else if let Some(rest) = name.strip_prefix(b"__tsan_") {
                    let point = rest.starts_with(b"atomic") && !rest.ends_with(b"fence")
                        || rest.starts_with(b"func_");
                    words.push((offset + bias, point));
                }
            }
        }
    }
    words.sort_unstable();
    words
}

impl Default for Code {
    fn default() -> Self {
        Self { parts: Vec::new(), info: InstructionInfoFactory::new(), unknown: Table::default() }
    }
}

impl Code {
    /// Whether the address is in code that was compiled with the passes.
    pub(crate) fn knows(&mut self, address: u64) -> bool {
        self.part(address).is_some()
    }

    fn part(&mut self, address: u64) -> Option<usize> {
        let covers = |part: &Part| (part.start..part.end).contains(&address);
        if let Some(found) = self.parts.iter().position(covers) {
            return Some(found);
        }
        // One that was loaded meanwhile, perhaps.
        if self.unknown.insert(address, ()).is_some() {
            return None;
        }
        self.read();
        self.parts.iter().position(covers)
    }

    /// Looks which files are loaded.
    pub(crate) fn read(&mut self) {
        let mut parts: Vec<Part> = Vec::new();
        // SAFETY: `visit` gets the same vector back.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut parts).cast()) };
        self.parts = parts;
    }

    /// Whether any of them was compiled with the passes.
    pub(crate) fn any(&self) -> bool {
        !self.parts.is_empty()
    }

    /// The instruction at an address of a part.
    fn decode(part: &Part, at: u64) -> Option<Instruction> {
        if !(part.start..part.end).contains(&at) {
            return None;
        }
        let bytes = (part.end - at).min(16) as usize;
        // SAFETY: within the part, which is loaded and readable.
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The target of a call.
    fn called(part: &Part, call: &Instruction) -> Called {
        let of_word = |word: u64| {
            let found = part.words.binary_search_by_key(&word, |(at, _)| *at);
            found.ok().map(|index| if part.words[index].1 { Called::Point } else { Called::Access })
        };
        if call.flow_control() == FlowControl::IndirectCall {
            let word = call.is_ip_rel_memory_operand().then(|| call.ip_rel_memory_address());
            return word.and_then(of_word).unwrap_or(Called::Other(None));
        }
        let target = call.near_branch_target();
        // A stub of the linkage table: perhaps a mark for indirect branches, then a jump through a word.
        let mut at = target;
        for _ in 0..2 {
            let Some(stub) = Self::decode(part, at) else { break };
            if stub.mnemonic() == Mnemonic::Jmp && stub.is_ip_rel_memory_operand() {
                return of_word(stub.ip_rel_memory_address()).unwrap_or(Called::Other(None));
            }
            at = stub.next_ip();
        }
        Called::Other(Some(target))
    }

    /// The instructions executed from `from` to `to`, both directly behind a call.
    pub(crate) fn path(&mut self, from: u64, to: u64) -> Path {
        let Some(index) = self.part(from) else { return Path::default() };
        let mut pieces = vec![Piece { start: from, end: 0, before: None }];
        let mut calls = Vec::new();
        let mut left = SEARCHED;
        if let Some((last, returns_to)) = self.search(index, &mut pieces, to, &mut calls, &mut left)
        {
            let mut path = self.operations(index, &pieces, last);
            (path.found, path.returns_to) = (true, returns_to);
            return path;
        }
        if to == 0 {
            return self.operations(index, &pieces, 0);
        }
        // Into a function that was called and has its first point there.
        for (call, target, piece) in calls {
            let mut inner = vec![Piece { start: target, end: 0, before: None }];
            if let Some((last, _)) = self.search(index, &mut inner, to, &mut Vec::new(), &mut left)
            {
                pieces[piece].end = call;
                let mut path = self.operations(index, &pieces, piece);
                let rest = self.operations(index, &inner, last);
                path.operations.extend(rest.operations);
                path.branches |= rest.branches;
                (path.found, path.returns_to) = (true, call);
                return path;
            }
        }
        // Straight on, as far as it goes.
        self.operations(index, &pieces, 0)
    }

    /// Looks for the call that returns to `to`; the number of the piece that ends there. Direct calls are noted, with where
    /// they return to, their target and their piece.
    fn search(
        &self,
        part: usize,
        pieces: &mut Vec<Piece>,
        to: u64,
        calls: &mut Vec<(u64, u64, usize)>,
        left: &mut usize,
    ) -> Option<(usize, u64)> {
        let part = &self.parts[part];
        let mut due: VecDeque<usize> = (0..pieces.len()).collect();
        while let Some(number) = due.pop_front() {
            let mut at = pieces[number].start;
            loop {
                *left = left.checked_sub(1)?;
                let Some(instruction) = Self::decode(part, at) else { break };
                let next = instruction.next_ip();
                pieces[number].end = next;
                match instruction.flow_control() {
                    FlowControl::Call | FlowControl::IndirectCall => {
                        if next == to {
                            return Some((number, 0));
                        }
                        match Self::called(part, &instruction) {
                            Called::Point => break,
                            Called::Other(Some(target)) => calls.push((next, target, number)),
                            Called::Access | Called::Other(None) => {}
                        }
                    }
                    FlowControl::ConditionalBranch => {
                        for start in [next, instruction.near_branch_target()] {
                            if pieces.iter().all(|piece| piece.start != start) {
                                due.push_back(pieces.len());
                                pieces.push(Piece { start, end: 0, before: Some(number) });
                            }
                        }
                        break;
                    }
                    FlowControl::UnconditionalBranch => {
                        let start = instruction.near_branch_target();
                        if pieces.iter().all(|piece| piece.start != start) {
                            due.push_back(pieces.len());
                            pieces.push(Piece { start, end: 0, before: Some(number) });
                        }
                        break;
                    }
                    FlowControl::Next | FlowControl::XbeginXabortXend => {}
                    _ => break,
                }
                at = next;
            }
        }
        None
    }

    /// The operations of the pieces that lead to `last`.
    fn operations(&mut self, part: usize, pieces: &[Piece], last: usize) -> Path {
        let mut chain = vec![last];
        while let Some(before) = pieces[chain[chain.len() - 1]].before {
            chain.push(before);
        }
        let mut made = Made::default();
        for number in chain.into_iter().rev() {
            let Piece { start, end, .. } = pieces[number];
            let mut at = start;
            while at < end
                && let Some(instruction) = Self::decode(&self.parts[part], at)
            {
                at = instruction.next_ip();
                if matches!(
                    instruction.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                ) {
                    made.call(Self::called(&self.parts[part], &instruction), at);
                } else if instruction.flow_control() == FlowControl::ConditionalBranch
                    && Self::is_moves(&self.parts[part], &instruction)
                {
                    made.push(Kind::Simple, &[FLAGS], &[], 1, 0);
                } else {
                    made.add(&instruction, &mut self.info);
                }
            }
        }
        Path {
            branches: made.operations.iter().any(|operation| operation.kind == Kind::Branch),
            operations: made.operations,
            ..Path::default()
        }
    }

    /// Whether the branch is one that the compiler makes a conditional move of where no call stands in its arms: one or both
    /// of its ways set one register in an operation or two, and then both are at the same point.
    fn is_moves(part: &Part, branch: &Instruction) -> bool {
        let ways = [branch.next_ip(), branch.near_branch_target()];
        let Some(firsts) =
            ways.map(|way| Self::arm(part, way)).into_iter().collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        let [(one, before), (other, other_before)] = firsts[..] else { return false };
        let sets = match (Self::arm(part, one), Self::arm(part, other)) {
            (Some((next, set)), _) if next == other => [before, other_before, set, set],
            (_, Some((next, set))) if next == one => [before, other_before, set, set],
            (Some((one, set)), Some((other, other_set))) if one == other => {
                [before, other_before, set, other_set]
            }
            _ => return false,
        };
        let mut sets = sets.into_iter().filter(|register| *register != Register::None);
        let first = sets.next();
        sets.all(|register| Some(register) == first)
    }

    /// The next point after an operation or two that set one register, and that register.
    fn arm(part: &Part, from: u64) -> Option<(u64, Register)> {
        let mut at = from;
        let mut simple = 0;
        let mut set = Register::None;
        for _ in 0..12 {
            let instruction = Self::decode(part, at)?;
            at = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch => at = instruction.near_branch_target(),
                FlowControl::Call | FlowControl::IndirectCall => {
                    return (Self::called(part, &instruction) == Called::Point)
                        .then_some((at, set));
                }
                FlowControl::Next if kind(instruction.mnemonic()) == Kind::Simple => {
                    if matches!(instruction.mnemonic(), Mnemonic::Nop) {
                        continue;
                    }
                    let to = instruction.op0_register().full_register();
                    let memory = (0..instruction.op_count())
                        .any(|number| instruction.op_kind(number) == OpKind::Memory);
                    simple += 1;
                    if simple > 2
                        || memory && instruction.mnemonic() != Mnemonic::Lea
                        || to == Register::None
                        || set != Register::None && set != to
                    {
                        return None;
                    }
                    set = to;
                }
                _ => return None,
            }
        }
        None
    }
}

/// Operations as they are made.
#[derive(Debug, Default)]
struct Made {
    operations: Vec<Operation>,
    /// Announced accesses whose instructions have not come yet.
    announced: VecDeque<u64>,
    /// Where the last call was.
    since: usize,
}

impl Made {
    fn call(&mut self, called: Called, returns_to: u64) {
        if let Called::Other(_) = called {
            // The call and the return.
            self.push(Kind::Simple, &[], &[], 2, 0);
            self.since = self.operations.len();
            return;
        }
        // The set-up of its arguments exists only for it.
        let arguments: &[Register] = if called == Called::Access {
            &[Register::RDI]
        } else {
            &[Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8]
        };
        for register in arguments.iter().filter_map(|register| place(*register)) {
            let sets = |operation: &Operation| {
                operation.targets[0] == register && operation.targets[1] == NOWHERE
            };
            if let Some(index) = self.operations[self.since..].iter().rposition(sets) {
                let operation = &mut self.operations[self.since + index];
                if operation.access == 0 {
                    operation.slots = 0;
                }
            }
        }
        self.since = self.operations.len();
        if called == Called::Access {
            self.announced.push_back(returns_to);
        }
    }

    fn push(&mut self, kind: Kind, sources: &[u16], targets: &[u16], slots: u8, access: u64) {
        let mut operation =
            Operation { kind, sources: [NOWHERE; 5], targets: [NOWHERE; 3], slots, access };
        for (to, from) in operation.sources.iter_mut().zip(sources) {
            *to = *from;
        }
        for (to, from) in operation.targets.iter_mut().zip(targets) {
            *to = *from;
        }
        self.operations.push(operation);
    }

    fn add(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        use Mnemonic as M;
        let mnemonic = instruction.mnemonic();
        if matches!(mnemonic, M::Nop | M::Endbr64 | M::Jmp | M::Ret | M::Leave) {
            return;
        }
        if matches!(mnemonic, M::Push | M::Pop) {
            return self.push(Kind::Simple, &[], &[], 1, 0);
        }
        let used = info.info(instruction);
        let (mut sources, mut targets) = (Vec::new(), Vec::new());
        for register in used.used_registers() {
            let Some(place) = place(register.register()) else { continue };
            let access = register.access();
            if matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            ) && !sources.contains(&place)
            {
                sources.push(place);
            }
            if matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            ) && !targets.contains(&place)
            {
                targets.push(place);
            }
        }
        // Clearing a register by itself waits for nothing.
        if matches!(
            mnemonic,
            M::Xor | M::Pxor | M::Xorps | M::Xorpd | M::Vpxor | M::Vxorps | M::Sub
        ) && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register()
        {
            sources.clear();
        }
        if instruction.rflags_read() != 0 {
            sources.push(FLAGS);
        }
        if instruction.rflags_modified() != 0 {
            targets.push(FLAGS);
        }
        let mut kind = kind(mnemonic);
        if instruction.flow_control() != FlowControl::Next {
            kind = Kind::Branch;
        }
        let copies = matches!(
            mnemonic,
            M::Mov
                | M::Movzx
                | M::Movsxd
                | M::Movaps
                | M::Movapd
                | M::Movups
                | M::Movupd
                | M::Movdqa
                | M::Movdqu
                | M::Movsd
                | M::Movss
                | M::Movq
                | M::Movd
                | M::Movsx
                | M::Vmovaps
                | M::Vmovups
                | M::Vmovapd
                | M::Vmovsd
                | M::Vmovss
                | M::Vmovdqu
                | M::Vmovdqa
                | M::Lddqu
                | M::Movhps
                | M::Movlps
                | M::Movhpd
                | M::Movlpd
        );
        let memory = used.used_memory().first().copied();
        let Some(memory) = memory.filter(|_| mnemonic != M::Lea) else {
            if mnemonic == M::Lea
                && instruction.memory_index() != Register::None
                && instruction.memory_base() != Register::None
                && instruction.memory_displacement64() != 0
            {
                // Two steps.
                self.push(kind, &sources, &[LOADED], 0, 0);
                return self.push(kind, &[LOADED], &targets, 1, 0);
            }
            let plain = copies
                && instruction.op_count() == 2
                && instruction.op1_kind() == OpKind::Register
                && matches!(mnemonic, M::Mov | M::Movaps | M::Movapd | M::Movdqa | M::Vmovaps);
            return self.push(if plain { Kind::Move } else { kind }, &sources, &targets, 1, 0);
        };
        let slot = slot(memory.base(), memory.index(), memory.displacement());
        let (reads, writes) = (
            matches!(
                memory.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            ),
            matches!(
                memory.access(),
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            ),
        );
        let address: Vec<u16> =
            [memory.base(), memory.index()].into_iter().filter_map(place).collect();
        if let Some(slot) = slot {
            if reads {
                sources.push(slot);
            }
            if writes {
                targets.push(slot);
            }
            return match copies {
                true => self.push(Kind::Move, &sources, &targets, 0, 0),
                false => self.push(kind, &sources, &targets, 1, 0),
            };
        }
        let relative = memory.base() == Register::RIP || memory.base() == Register::None;
        let access = match relative && self.announced.is_empty() {
            true => 0,
            false => self.announced.front().copied().unwrap_or(0),
        };
        if reads {
            let _ = self.announced.pop_front();
            if copies {
                // The register that it goes to is no source of its own.
                return self.push(Kind::Load, &address, &targets, 1, access);
            }
            self.push(Kind::Load, &address, &[LOADED], 0, access);
            sources.retain(|place| !address.contains(place) || targets.contains(place));
            sources.push(LOADED);
            self.push(kind, &sources, &targets, 1, 0);
            if writes {
                self.push(Kind::Store, &targets, &[], 1, 0);
            }
            return;
        }
        let _ = self.announced.pop_front();
        self.push(Kind::Store, &sources, &[], 1, access);
    }
}

/// The register's place; none for those that nothing waits for.
fn place(register: Register) -> Option<u16> {
    let full = register.full_register();
    if full.is_gpr64() && full != Register::RSP {
        return Some(full.number() as u16);
    }
    full.is_vector_register().then(|| 16 + full.number() as u16)
}

/// A place on the stack that stands for a register.
fn slot(base: Register, index: Register, displacement: u64) -> Option<u16> {
    if index != Register::None {
        return None;
    }
    let which = match base {
        Register::RSP => 0,
        Register::RBP => 1,
        _ => return None,
    };
    Some(SLOTS + ((displacement as i64 >> 2) as u16 & 0x3fff) * 2 + which)
}

fn kind(mnemonic: Mnemonic) -> Kind {
    use Mnemonic as M;
    match mnemonic {
        M::Imul
        | M::Mul
        | M::Mulx
        | M::Crc32
        | M::Pmuludq
        | M::Pmulld
        | M::Pmullw
        | M::Pmaddwd
        | M::Vpmuludq
        | M::Vpmulld => Kind::Multiply,
        M::Div | M::Idiv => Kind::Divide,
        M::Divsd
        | M::Divss
        | M::Divpd
        | M::Divps
        | M::Sqrtsd
        | M::Sqrtss
        | M::Sqrtpd
        | M::Sqrtps
        | M::Vdivsd
        | M::Vdivss
        | M::Vdivpd
        | M::Vdivps
        | M::Vsqrtsd
        | M::Vsqrtss
        | M::Vsqrtpd => Kind::FloatDivide,
        M::Addsd
        | M::Addss
        | M::Addpd
        | M::Addps
        | M::Subsd
        | M::Subss
        | M::Subpd
        | M::Subps
        | M::Mulsd
        | M::Mulss
        | M::Mulpd
        | M::Mulps
        | M::Vaddsd
        | M::Vaddpd
        | M::Vaddps
        | M::Vaddss
        | M::Vmulsd
        | M::Vmulpd
        | M::Vmulps
        | M::Vmulss
        | M::Vsubsd
        | M::Vsubpd
        | M::Vsubps
        | M::Vsubss
        | M::Comisd
        | M::Ucomisd
        | M::Comiss
        | M::Ucomiss
        | M::Cvtsi2sd
        | M::Cvtsi2ss
        | M::Cvttsd2si
        | M::Cvttss2si
        | M::Cvtsd2si
        | M::Cvtsd2ss
        | M::Cvtss2sd
        | M::Cvtdq2pd
        | M::Vfmadd213sd
        | M::Vfmadd231sd
        | M::Vfmadd132sd
        | M::Vfmadd231pd
        | M::Vfmadd213pd
        | M::Bsf
        | M::Bsr => Kind::Float,
        _ => Kind::Simple,
    }
}
