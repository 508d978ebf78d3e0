//! The queues of the replacement policy, and the hand that moves through them.
//!
//! # Boundary
//! Frame numbers and hashes of pages. Plain data: the caller excludes other threads, and reports evictions.
//!
//! # Classes
//! Pages to evict first ([`Class::Once`]) and pages to keep ([`Class::Keep`]) have a queue each, beside the
//! two of the policy. The `Once` queue is emptied before all others, in order of admission, used or not. Only a page
//! that was read ahead and not used yet is skipped, once: otherwise its read would be wasted. The `Keep` queue is
//! searched when no other page is left, or when it has more than seven eighths of all pages. A used page gets one more
//! round for each use. Evicted pages of these two classes are not remembered. The policy does not see them: its queues
//! do not contain them, and its clock does not count pages of the class `Once`.

use super::access::{Access, CORRELATED_TICKS};
use super::duel::Duel;
use super::ghost::Ghost;
use crate::class::Class;

/// The probationary queue has one page in this many.
const SMALL_ONE_IN: usize = 10;
/// One page in this many is reserved for other classes than `Keep`.
const OTHERS_ONE_IN: usize = 8;
/// The most frames looked at for each wanted one, so that no call holds the caller's lock for long.
const LOOKS_EACH: usize = 64;
/// The number of unsuccessful offers that one eviction cancels.
const VAIN_PER_DEPARTURE: usize = 16;

/// Admissions within which uses count as one, as a part of the cache, if that is less than the usual number. Otherwise
/// the pages of a small cache could not be used twice.
const CORRELATED_ONE_IN: usize = 128;

/// The outcome of a call of [`Queues::candidates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// All the frames that were wanted.
    Full,
    /// Fewer, because many pages had been used: ask again.
    Short,
    /// Every page was offered since the last eviction, and none could be evicted: wait until a page is written or
    /// released before asking again.
    Exhausted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Place {
    Nowhere = 0,
    Small = 1,
    Main = 2,
    Once = 3,
    Keep = 4,
}

/// A flag beside a frame's place, during a call of `candidates`: the frame was offered.
const OFFERED: u8 = 0x80;

/// One queue's ends, as links.
#[derive(Debug, Default)]
struct Queue {
    /// The next frame to look at.
    head: u32,
    tail: u32,
    length: usize,
    /// Unsuccessful offers of its pages, minus those that evictions cancelled.
    vain: usize,
}

/// Frames that one call has offered, by queue.
#[derive(Debug, Default)]
struct Offered {
    small: usize,
    main: usize,
    once: usize,
    keep: usize,
}

impl Offered {
    fn all(&self) -> usize {
        self.small + self.main + self.once + self.keep
    }
}

/// S3-FIFO with a correlation window. The policy is described in [`super`].
#[derive(Debug)]
pub struct Queues {
    frames_max: usize,
    /// For each frame that was ever queued: the frame before it and the one behind it, plus 1; 0 for none.
    links: Vec<[u32; 2]>,
    /// For each frame: its [`Place`].
    places: Vec<u8>,
    small: Queue,
    main: Queue,
    once: Queue,
    keep: Queue,
    ghost: Ghost,
    duel: Duel,
    clock: u32,
    ticks_per_admission: u32,
}

const BEFORE: usize = 0;
const BEHIND: usize = 1;

impl Queues {
    /// Empty queues for frames numbered below `frames_max`.
    pub fn new(frames_max: u32) -> Self {
        let mut queues = Self {
            frames_max: frames_max as usize,
            links: Vec::new(),
            places: Vec::new(),
            small: Queue::default(),
            main: Queue::default(),
            once: Queue::default(),
            keep: Queue::default(),
            ghost: Ghost::new(0),
            duel: Duel::default(),
            clock: 0,
            ticks_per_admission: 1,
        };
        queues.set_capacity(frames_max as usize);
        queues
    }

    /// Sets the number of pages for which the cache has room. Forgets the evicted pages.
    pub fn set_capacity(&mut self, frames: usize) {
        let frames = frames.min(self.frames_max);
        self.ghost = Ghost::new(frames - frames / SMALL_ONE_IN);
        let correlated = (frames / CORRELATED_ONE_IN).clamp(1, CORRELATED_TICKS as usize);
        self.ticks_per_admission = CORRELATED_TICKS / correlated as u32;
    }

    /// The clock, which advances with admissions, for [`super::AccessWord::touch`].
    pub fn clock(&self) -> u32 {
        self.clock
    }

    /// The number of pages in the queues.
    pub fn len(&self) -> usize {
        self.small.length + self.main.length + self.once.length + self.keep.length
    }

    /// Whether the queues have no page.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory of the queues.
    pub fn bytes(&self) -> usize {
        let frames = size_of_val(self.links.as_slice()) + size_of_val(self.places.as_slice());
        frames + self.ghost.bytes()
    }

    /// Admits the page that `frame` now holds, for a use; `key` is a hash of it. A recently evicted page goes to the
    /// main queue. A frame that is already queued stays in its place.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn admit(&mut self, access: &impl Access, frame: u32, key: u64) {
        self.admit_as(access, frame, key, (Class::Normal, false));
    }

    /// Admits as [`Queues::admit`] does, with a class; if `ahead`, before any use: the first use will not count.
    ///
    /// # Panics
    /// The same as for [`Queues::admit`].
    pub fn admit_as(
        &mut self,
        access: &impl Access,
        frame: u32,
        key: u64,
        (class, ahead): (Class, bool),
    ) {
        assert!((frame as usize) < self.frames_max, "no frame {frame}");
        if class != Class::Once {
            self.clock = self.clock.wrapping_add(self.ticks_per_admission);
        }
        access.access(frame).start(self.clock, ahead);
        if self.place(frame) == Place::Nowhere {
            let place = match class {
                Class::Once => Place::Once,
                Class::Keep => Place::Keep,
                Class::Normal if self.duel.admits_to_main(key) || self.ghost.contains(key) => {
                    Place::Main
                }
                Class::Normal => Place::Small,
            };
            self.push(frame, place);
        }
    }

    /// Changes the class of the page in `frame`. False if it already has this class, or is not queued.
    pub fn set_class(&mut self, frame: u32, class: Class) -> bool {
        let place = self.place(frame);
        let to = match class {
            Class::Once => Place::Once,
            Class::Keep => Place::Keep,
            Class::Normal if matches!(place, Place::Small | Place::Main) => return false,
            // On probation, as if it had just been admitted.
            Class::Normal => Place::Small,
        };
        if place == Place::Nowhere || place == to {
            return false;
        }
        self.unlink(frame, place);
        self.push(frame, to);
        true
    }

    /// The number of pages of this class.
    pub fn len_of(&self, class: Class) -> usize {
        match class {
            Class::Normal => self.small.length + self.main.length,
            Class::Keep => self.keep.length,
            Class::Once => self.once.length,
        }
    }

    /// Forgets `frame`, whose page left the cache for another reason. False if it was not queued.
    pub fn remove(&mut self, frame: u32) -> bool {
        let place = self.place(frame);
        if place == Place::Nowhere {
            return false;
        }
        self.unlink(frame, place);
        true
    }

    /// Forgets `frame`, because its page was evicted; `key` is that of its admission.
    pub fn evicted(&mut self, frame: u32, key: u64) {
        let place = self.place(frame);
        if self.remove(frame) {
            let all = [&mut self.once, &mut self.small, &mut self.main, &mut self.keep];
            // The eviction of a `Once` page does not mean that pages of other queues can be evicted.
            let concerned = if place == Place::Once { 1 } else { all.len() };
            for queue in all.into_iter().take(concerned) {
                queue.vain = queue.vain.saturating_sub(VAIN_PER_DEPARTURE);
            }
        }
        if place == Place::Small {
            self.ghost.insert(key);
        }
    }

    /// Adds up to `wanted` frames to `out` whose pages should be evicted first, each once. They stay queued, behind the
    /// others of their queue, until [`Queues::evicted`] or [`Queues::remove`] removes them. Looks at a bounded number
    /// of pages. When all have been proposed without an eviction, reports that instead of starting another round.
    pub fn candidates(&mut self, access: &impl Access, wanted: usize, out: &mut Vec<u32>) -> Offer {
        let before = out.len();
        let offer = self.offer(access, wanted, out);
        for &frame in &out[before..] {
            self.places[frame as usize] &= !OFFERED;
        }
        offer
    }

    fn offer(&mut self, access: &impl Access, wanted: usize, out: &mut Vec<u32>) -> Offer {
        let mut offered = Offered::default();
        let mut looks = wanted.saturating_mul(LOOKS_EACH);
        while offered.all() < wanted {
            let Some(place) = self.next_place(&offered) else {
                if offered.all() > 0 {
                    return Offer::Short;
                }
                // The next call begins another round.
                for queue in [&mut self.small, &mut self.main, &mut self.once, &mut self.keep] {
                    queue.vain = 0;
                }
                return Offer::Exhausted;
            };
            if looks == 0 {
                return Offer::Short;
            }
            looks -= 1;
            if let Some(frame) = self.look(access, place) {
                out.push(frame);
                match place {
                    Place::Small => offered.small += 1,
                    Place::Once => offered.once += 1,
                    Place::Keep => offered.keep += 1,
                    Place::Main | Place::Nowhere => offered.main += 1,
                }
            }
        }
        Offer::Full
    }

    /// The next queue to look at; `None` if each has offered all its frames.
    fn next_place(&self, offered: &Offered) -> Option<Place> {
        // Queue lengths as if the offered frames had been evicted.
        let small_left = self.small.length.saturating_sub(offered.small);
        let left =
            (self.small.length + self.main.length).saturating_sub(offered.small + offered.main);
        let once_left = self.once.length.saturating_sub(offered.once);
        let keep_left = self.keep.length.saturating_sub(offered.keep);
        if self.once.vain < self.once.length && once_left > 0 {
            return Some(Place::Once);
        }
        let keep_may = self.keep.vain < self.keep.length && keep_left > 0;
        if keep_may && keep_left > self.len() - self.len() / OTHERS_ONE_IN {
            return Some(Place::Keep);
        }
        let small_may = self.small.vain < self.small.length && small_left > 0;
        let main_may = self.main.vain < self.main.length && left > small_left;
        let small_should = small_left > left / SMALL_ONE_IN;
        match (small_may, main_may) {
            (true, false) => Some(Place::Small),
            (false, true) => Some(Place::Main),
            (true, true) if small_should => Some(Place::Small),
            (true, true) => Some(Place::Main),
            (false, false) => keep_may.then_some(Place::Keep),
        }
    }

    /// Looks at the head of one queue, and moves the head on. Returns the frame, if its page should be evicted.
    fn look(&mut self, access: &impl Access, place: Place) -> Option<u32> {
        let frame = self.queue(place).head.checked_sub(1)?;
        if self.places[frame as usize] & OFFERED != 0 {
            // The frames between it and the tail were used, and are looked at again.
            self.unlink(frame, place);
            self.push(frame, place);
            self.places[frame as usize] |= OFFERED;
            return None;
        }
        let word = access.access(frame);
        self.unlink(frame, place);
        let stays = match place {
            Place::Once => word.spare_ahead(),
            _ => word.count() > 0,
        };
        if stays {
            match place {
                // Ends a round in which no page can be evicted.
                Place::Once => self.once.vain += 1,
                _ => word.forget(place == Place::Small),
            }
            self.push(frame, if place == Place::Small { Place::Main } else { place });
            return None;
        }
        self.push(frame, place);
        self.places[frame as usize] |= OFFERED;
        self.queue(place).vain += 1;
        Some(frame)
    }

    fn place(&self, frame: u32) -> Place {
        match self.places.get(frame as usize).map(|place| place & !OFFERED) {
            Some(1) => Place::Small,
            Some(2) => Place::Main,
            Some(3) => Place::Once,
            Some(4) => Place::Keep,
            _ => Place::Nowhere,
        }
    }

    fn queue(&mut self, place: Place) -> &mut Queue {
        match place {
            Place::Main => &mut self.main,
            Place::Once => &mut self.once,
            Place::Keep => &mut self.keep,
            Place::Small | Place::Nowhere => &mut self.small,
        }
    }

    /// Puts `frame`, which is in no queue, at the tail of one.
    fn push(&mut self, frame: u32, place: Place) {
        if frame as usize >= self.places.len() {
            // Frames are used from the first one on, so this grows with the number of frames in use.
            let frames = (frame as usize + 1).next_power_of_two().min(self.frames_max);
            self.links.resize(frames, [0; 2]);
            self.places.resize(frames, 0);
        }
        let queue = self.queue(place);
        let last = std::mem::replace(&mut queue.tail, frame + 1);
        queue.length += 1;
        if last == 0 {
            queue.head = frame + 1;
        } else {
            self.links[last as usize - 1][BEHIND] = frame + 1;
        }
        self.links[frame as usize] = [last, 0];
        self.places[frame as usize] = place as u8;
    }

    /// Takes `frame` out of its queue, `place`.
    fn unlink(&mut self, frame: u32, place: Place) {
        let [before, behind] = self.links[frame as usize];
        self.places[frame as usize] = Place::Nowhere as u8;
        match before {
            0 => self.queue(place).head = behind,
            before => self.links[before as usize - 1][BEHIND] = behind,
        }
        match behind {
            0 => self.queue(place).tail = before,
            behind => self.links[behind as usize - 1][BEFORE] = before,
        }
        self.queue(place).length -= 1;
    }
}
