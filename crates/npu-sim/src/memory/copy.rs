//! Copies and fills: which way they go, whether that is what the addresses say, and how they are queued.

use super::{Address, Fault, Memory, Runs, arena};
use crate::{
    capture,
    order::Touch,
    status::{BAD_PARAMETER, INVALID_HANDLE, RUNTIME_FEATURE_NOT_SUPPORTED, Refusal},
    stream::{
        self, Kind, Launch,
        admit::{Asked, admit},
    },
    world::{self, World},
};
use std::{
    ffi::c_void,
    sync::{Arc, MutexGuard},
};

/// What a copy was asked for. One row is a plain copy.
#[derive(Debug, Clone, Copy)]
pub struct Copy {
    /// The call's name.
    pub entry: &'static str,
    /// Where to.
    pub target: Address,
    /// Bytes from one row of the target to the next.
    pub target_pitch: u64,
    /// Where from.
    pub source: Address,
    /// Bytes from one row of the source to the next.
    pub source_pitch: u64,
    /// Bytes of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// `aclrtMemcpyKind`.
    pub kind: i32,
}

/// The stream of an asynchronous call.
pub type On = Option<*mut c_void>;

/// What an address is of.
#[derive(Debug, Clone)]
enum Place {
    Device(Arc<Memory>),
    Pinned,
    Pageable,
}

impl Place {
    fn of(world: &World, at: Address) -> Self {
        let card = world.cards.iter().find(|card| card.memory.owns(at));
        match card {
            Some(card) => Self::Device(card.memory.clone()),
            None if world.pinned.around(at).is_some() => Self::Pinned,
            None => Self::Pageable,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Device(memory) => format!("memory of card {}", memory.card),
            Self::Pinned => "pinned host memory".to_owned(),
            Self::Pageable => "host memory".to_owned(),
        }
    }

    fn is_pinned(&self) -> bool {
        matches!(self, Self::Pinned)
    }

    fn card(&self) -> Option<u32> {
        if let Self::Device(memory) = self { Some(memory.card) } else { None }
    }

    /// Where we find the bytes.
    fn bytes(&self, at: Address, len: u64) -> Result<u64, Fault> {
        match self {
            Self::Device(memory) => Ok(memory.bytes_mut(at, len)?.as_mut_ptr() as u64),
            Self::Pinned | Self::Pageable => Ok(at),
        }
    }
}

/// What each kind says of target and source: whether it is the device.
const KINDS: [(&str, Option<(bool, bool)>); 8] = [
    ("HOST_TO_HOST", Some((false, false))),
    ("HOST_TO_DEVICE", Some((true, false))),
    ("DEVICE_TO_HOST", Some((false, true))),
    ("DEVICE_TO_DEVICE", Some((true, true))),
    ("DEFAULT", None),
    ("HOST_TO_BUF_TO_DEVICE", Some((true, false))),
    ("INNER_DEVICE_TO_DEVICE", Some((true, true))),
    ("INTER_DEVICE_TO_DEVICE", Some((true, true))),
];

fn runs(at: Address, width: u64, height: u64, pitch: u64) -> Runs {
    let repeats = if height > 1 { vec![(height, pitch as i64)] } else { Vec::new() };
    Runs { start: at, run_bytes: width, repeats }
}

impl Copy {
    fn refuse(&self, code: i32, what: String) -> Refusal {
        Refusal::new(code, format!("{}: {what}", self.entry))
    }

    /// Judges the kind by what the addresses are.
    fn directed(&self, target: &Place, source: &Place, asynchronous: bool) -> Result<(), Refusal> {
        let code = if asynchronous { INVALID_HANDLE } else { BAD_PARAMETER };
        let Some((name, says)) = usize::try_from(self.kind).ok().and_then(|kind| KINDS.get(kind)) else {
            return Err(self.refuse(BAD_PARAMETER, format!("kind is {}, 0 to 7 are expected", self.kind)));
        };
        let (to, from) = (target.card(), source.card());
        if says.is_some_and(|says| says != (to.is_some(), from.is_some())) {
            return Err(
                self.refuse(code, format!("kind is {name}, but dst is {} and src is {}", target.name(), source.name()))
            );
        }
        let wrong_cards = self.kind == 6 && to != from || self.kind == 7 && to == from;
        if wrong_cards {
            return Err(
                self.refuse(code, format!("kind is {name}, but dst is {} and src is {}", target.name(), source.name()))
            );
        }
        if asynchronous && to.is_none() && from.is_none() {
            return Err(
                self.refuse(RUNTIME_FEATURE_NOT_SUPPORTED, "HOST_TO_HOST is not asynchronous on this card".to_owned())
            );
        }
        Ok(())
    }

    /// Refuses memory that is not live, rows that overlap, and cards that may not be reached.
    fn reachable(
        &self,
        world: &World,
        card: u32,
        places: [(&'static str, &Place, &Runs); 2],
        asynchronous: bool,
    ) -> Result<(), Refusal> {
        let code = if asynchronous { INVALID_HANDLE } else { BAD_PARAMETER };
        for (argument, place, runs) in places {
            if runs.start == 0 {
                return Err(self.refuse(BAD_PARAMETER, format!("{argument} is a null pointer")));
            }
            if let Some((start, region)) = world.pinned.around(runs.start).filter(|_| matches!(place, Place::Pinned))
                && runs.span() > region.bytes - (runs.start - start)
            {
                return Err(self.refuse(code, format!("{argument} leaves its pinned memory of {} bytes", region.bytes)));
            }
            let Place::Device(memory) = place else { continue };
            memory
                .pieces(runs.start, runs.span())
                .map_err(|fault| self.refuse(code, format!("{argument}: {}", fault.message)))?;
            if memory.card != card && !world.cards[card as usize].peers.contains(&memory.card) {
                let other = memory.card;
                let what = format!(
                    "{argument} is memory of card {other}, and aclrtDeviceEnablePeerAccess({other}) was not called on card {card}"
                );
                return Err(self.refuse(BAD_PARAMETER, what));
            }
        }
        Ok(())
    }

    /// Copies now, or asks a stream to.
    ///
    /// # Errors
    /// 107000, 107017: addresses, sizes, direction; 107030: not while capturing; 207000: host to host on a stream; the
    /// card's asynchronous error.
    pub fn run(self, on: On) -> Result<(), Refusal> {
        let mut world = world::open()?;
        let card = world.context()?.1.card;
        let pitches = [self.target_pitch, self.source_pitch];
        let pitched = self.height <= 1 || pitches.iter().all(|pitch| *pitch >= self.width);
        if !pitched
            || self.width.checked_mul(self.height).is_none()
            || pitches.iter().any(|pitch| self.is_endless(*pitch))
        {
            let what =
                format!("width is {}, the pitches are {} and {}", self.width, self.target_pitch, self.source_pitch);
            return Err(self.refuse(BAD_PARAMETER, what));
        }
        let (target, source) = (Place::of(&world, self.target), Place::of(&world, self.source));
        let pageable = matches!(target, Place::Pageable) || matches!(source, Place::Pageable);
        if on.is_none() || pageable {
            capture::forbid(&mut world, self.entry)?;
        }
        if self.width * self.height == 0 {
            return Ok(());
        }
        self.directed(&target, &source, on.is_some())?;
        let to = runs(self.target, self.width, self.height, self.target_pitch);
        let from = runs(self.source, self.width, self.height, self.source_pitch);
        self.reachable(&world, card, [("dst", &target, &to), ("src", &source, &from)], on.is_some())?;
        let touches = [("src", from, false, &source), ("dst", to, true, &target)]
            .map(|(argument, runs, write, place)| Touch { argument, runs, write, pinned: place.is_pinned() });
        let touches = touches.to_vec();
        let work = move |_: &Memory| self.perform(&target, &source);
        match on {
            None => at_once(world, card, self.entry, Kind::Copy, &touches, work),
            Some(stream) => {
                let shapes = format!("{} bytes", self.width * self.height);
                let launch = Launch { operator: self.entry, shapes, touches, traps: false, work: Arc::new(work) };
                queued(world, stream, launch, Kind::Copy, pageable)
            }
        }
    }

    /// Whether rows at this distance reach beyond any address.
    fn is_endless(&self, pitch: u64) -> bool {
        let far =
            i64::try_from(pitch).ok().and_then(|pitch| pitch.unsigned_abs().checked_mul(self.height.saturating_sub(1)));
        let end = far.and_then(|far| far.checked_add(self.width)).and_then(|span| i64::try_from(span).ok());
        self.height > 1 && end.is_none()
    }

    fn perform(&self, target: &Place, source: &Place) -> Result<(), Fault> {
        for row in 0..self.height {
            let to = target.bytes(self.target + row * self.target_pitch, self.width)?;
            let from = source.bytes(self.source + row * self.source_pitch, self.width)?;
            arena::copy_raw(to, from, self.width);
        }
        Ok(())
    }
}

/// Runs work of the host itself: what queued work may still reach is found.
fn at_once(
    mut world: MutexGuard<World>,
    card: u32,
    entry: &'static str,
    kind: Kind,
    touches: &[Touch],
    work: impl Fn(&Memory) -> Result<(), Fault>,
) -> Result<(), Refusal> {
    let asked = Asked { card, kind, touches, mark: None, clock: &world.host };
    let found = admit(&world, asked);
    found.into_iter().for_each(|found| world.find(Some(card), entry, found));
    let bytes = touches.iter().map(|touch| touch.runs.bytes()).sum();
    world.trace.count(entry, bytes);
    let memory = world.cards[card as usize].memory.clone();
    let session = world.session;
    drop(world);
    work(&memory).map_err(|fault| Refusal::new(fault.code, fault.message))?;
    world::resume(session)?.told(card)
}

/// Queues work; with host memory that is not pinned, the call returns when it is over.
fn queued(
    mut world: MutexGuard<World>,
    on: *mut c_void,
    launch: Launch,
    kind: Kind,
    waits: bool,
) -> Result<(), Refusal> {
    let handle = world.stream_handle(launch.operator, on)?;
    let number = world.ask(handle, launch, kind)?;
    if !waits || number == 0 {
        return Ok(());
    }
    let (card, clock) = (world.stream(handle)?.card, world.stream(handle)?.clock.clone());
    let mut world = stream::wait_for(world, &[(handle, number)], None)?;
    world.host.join(&clock);
    world.told(card)
}

/// `aclrtMemset` and its asynchronous form.
///
/// # Errors
/// 107000, 107017: the address, or more bytes than there are; 107030: not while capturing; the card's asynchronous
/// error.
pub fn fill(entry: &'static str, at: Address, bytes_max: u64, value: i32, bytes: u64, on: On) -> Result<(), Refusal> {
    let mut world = world::open()?;
    let card = world.context()?.1.card;
    let place = Place::of(&world, at);
    let pageable = matches!(place, Place::Pageable);
    if on.is_none() || pageable {
        capture::forbid(&mut world, entry)?;
    }
    let target = runs(at, bytes, 1, bytes);
    let copy = Copy {
        entry,
        target: at,
        target_pitch: bytes,
        source: at,
        source_pitch: bytes,
        width: bytes,
        height: 1,
        kind: 4,
    };
    if bytes > bytes_max {
        return Err(copy.refuse(BAD_PARAMETER, format!("count is {bytes}, maxCount is {bytes_max}")));
    }
    if bytes == 0 {
        return Ok(());
    }
    copy.reachable(&world, card, [("devPtr", &place, &target); 2], on.is_some())?;
    let touches = vec![Touch { argument: "devPtr", runs: target, write: true, pinned: place.is_pinned() }];
    let work = move |_: &Memory| {
        arena::fill_raw(place.bytes(at, bytes)?, value as u8, bytes);
        Ok(())
    };
    match on {
        None => at_once(world, card, entry, Kind::Fill, &touches, work),
        Some(stream) => {
            let launch = Launch {
                operator: entry,
                shapes: format!("{bytes} bytes"),
                touches,
                traps: false,
                work: Arc::new(work),
            };
            queued(world, stream, launch, Kind::Fill, pageable)
        }
    }
}
