//! The readers and writers of each byte of a shared line: they tell false sharing from true.
//!
//! # Boundary
//! Byte masks per core, for lines that more than one core has had. The directory ([`crate::model`])
//! says when a line changes hands.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Two masks a core: `lost`, the bytes that others wrote since it lost the line, and `touched`, the
//! bytes that it accessed since it got it. A read that meets no lost byte, and a write that meets
//! neither a lost byte nor one that a holder touched, moved the line for nothing: false sharing. The
//! masks lie core by core, so that a transfer runs over one row. Weakness: 16 bytes a core for each
//! shared line; past a budget only lines that a write took from another core get them, and the first
//! such write of each of those may be called true where it was false.

/// No row.
pub(crate) const NONE: u32 = u32::MAX;

/// Bytes of masks up to which a row is made at the first transfer, not only at the first write that
/// takes the line from another core.
const EAGER_BYTES: usize = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sharing {
    cores: usize,
    lost: Vec<u64>,
    touched: Vec<u64>,
}

impl Sharing {
    pub(crate) fn new(cores: usize) -> Self {
        Self { cores, lost: Vec::new(), touched: Vec::new() }
    }

    /// Whether a row may be made before it is certain to be needed.
    pub(crate) fn may_be_eager(&self) -> bool {
        self.lost.len() * 16 < EAGER_BYTES
    }

    /// A new row, all masks empty.
    pub(crate) fn row(&mut self) -> u32 {
        let row = self.lost.len() / self.cores;
        self.lost.resize(self.lost.len() + self.cores, 0);
        self.touched.resize(self.lost.len(), 0);
        row as u32
    }

    #[inline]
    fn at(&self, row: u32, core: usize) -> usize {
        row as usize * self.cores + core
    }

    /// The core accessed these bytes of a line that it holds with others.
    #[inline]
    pub(crate) fn touch(&mut self, row: u32, core: usize, bytes: u64) {
        let at = self.at(row, core);
        self.touched[at] |= bytes;
    }

    /// Bytes that others wrote since the core lost the line.
    pub(crate) fn lost(&self, row: u32, core: usize) -> u64 {
        self.lost[self.at(row, core)]
    }

    /// Bytes that cores other than this one touched since they got the line.
    pub(crate) fn touched_by_others(&self, row: u32, core: usize) -> u64 {
        let start = self.at(row, 0);
        let row = &self.touched[start..start + self.cores];
        let union = |masks: &[u64]| masks.iter().fold(0, |union, mask| union | mask);
        union(&row[..core]) | union(&row[core + 1..])
    }

    /// A core that held the line alone no longer does: its writes are news to all others.
    pub(crate) fn publish(&mut self, row: u32, core: usize, written: u64, touched: u64) {
        let start = self.at(row, 0);
        let kept = self.lost[start + core];
        if written != 0 {
            for mask in &mut self.lost[start..start + self.cores] {
                *mask |= written;
            }
        }
        self.lost[start + core] = kept;
        self.touched[start + core] |= touched;
    }

    /// The core has the line: nothing is news to it.
    pub(crate) fn gain(&mut self, row: u32, core: usize, touched: u64) {
        let at = self.at(row, core);
        self.lost[at] = 0;
        self.touched[at] = touched;
    }

    /// The core's copy is gone.
    pub(crate) fn lose(&mut self, row: u32, core: usize) {
        let at = self.at(row, core);
        self.touched[at] = 0;
    }

    /// All copies are gone.
    pub(crate) fn lose_all(&mut self, row: u32) {
        let start = self.at(row, 0);
        self.touched[start..start + self.cores].fill(0);
    }
}
