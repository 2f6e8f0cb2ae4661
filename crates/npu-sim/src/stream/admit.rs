//! What is judged of an access before it is queued: that it lies in live memory of the right card, that what it reads
//! was written, and that what it meets is known to be over.

use super::Kind;
use crate::{
    finding::{Found, Kind as FindingKind},
    memory::{Contents, Fault, Memory, Piece, Runs, held},
    order::{Clock, Conflict, Mark, Touch},
    world::World,
};
use std::sync::Arc;

/// How the workspace of a launch is named among its arguments.
pub const WORKSPACE: &str = "workspace";

/// An access to be judged.
pub struct Asked<'a> {
    /// The card of the stream, or of the thread.
    pub card: u32,
    /// What kind of work.
    pub kind: Kind,
    /// Its operands.
    pub touches: &'a [Touch],
    /// Whose access it is; none for one of the host that is over when the call returns.
    pub mark: Option<Mark>,
    /// What is known to be over.
    pub clock: &'a Clock,
}

/// The regions of one operand; those of the host have no memory to fill.
struct Place {
    memory: Option<Arc<Memory>>,
    pieces: Vec<Piece>,
}

impl Place {
    /// Calls with the parts of each run that lie in one region, as offsets in it.
    fn each(&self, runs: &Runs, part: &mut impl FnMut(&Piece, u64, u64)) {
        if let [piece] = self.pieces.as_slice() {
            runs.each(&mut |start, bytes| part(piece, start - piece.start, start - piece.start + bytes));
            return;
        }
        runs.each(&mut |start, bytes| {
            for piece in &self.pieces {
                let (from, to) = (start.max(piece.start), (start + bytes).min(piece.start + piece.bytes));
                if from < to {
                    part(piece, from - piece.start, to - piece.start);
                }
            }
        });
    }
}

/// Judges an access and notes it.
pub fn admit(world: &World, asked: Asked) -> Vec<Found> {
    let mut found = Vec::new();
    let mut places = Vec::new();
    for touch in asked.touches {
        match place(world, &asked, touch) {
            Ok(place) => places.push((touch, place)),
            Err(problem) => found.push(problem),
        }
    }
    if found.iter().any(|found| found.kind.breaks()) {
        return found;
    }
    found.extend(workspace_on_operand(asked.touches));
    let copies =
        asked.kind == Kind::Copy && places.len() == 2 && places.iter().all(|(_, place)| place.memory.is_some());
    for (touch, place) in places.iter().filter(|(touch, _)| !touch.write) {
        let unwritten = if copies { None } else { unwritten(place, &touch.runs) };
        let problem = unwritten.map(|what| Found { kind: FindingKind::Unwritten, argument: touch.argument, what });
        found.extend(problem.or_else(|| meet(world, &asked, touch, place)));
    }
    let carried = if copies { carried(&places) } else { None };
    for (touch, place) in places.iter().filter(|(touch, _)| touch.write) {
        found.extend(meet(world, &asked, touch, place));
        let whole = carried.is_none();
        place.each(&touch.runs, &mut |piece, from, to| {
            let mut contents = held(&piece.contents);
            if let Some(memory) = &place.memory {
                memory.reach(piece, &mut contents, from, to);
            }
            if whole { contents.written.write(from, to) } else { contents.written.forget(from, to) }
        });
    }
    if let (Some(runs), Some((_, place))) = (carried, places.iter().find(|(touch, _)| touch.write)) {
        for (start, bytes) in runs {
            place.each(&Runs::of(start, bytes), &mut |piece, from, to| held(&piece.contents).written.write(from, to));
        }
    }
    found
}

/// A workspace that lies on an operand of its own launch, which writes it before and while it reads the operand.
fn workspace_on_operand(touches: &[Touch]) -> Option<Found> {
    let workspace = touches.iter().find(|touch| touch.argument == WORKSPACE)?;
    let (start, end) = (workspace.runs.start, workspace.runs.start.saturating_add(workspace.runs.bytes()));
    let meets = |touch: &&Touch| {
        let mut meets = false;
        let near = touch.runs.start < end && start < touch.runs.start.saturating_add(touch.runs.span());
        if touch.argument != WORKSPACE && near {
            touch.runs.each(&mut |from, bytes| meets |= from < end && start < from.saturating_add(bytes));
        }
        meets
    };
    let other = touches.iter().find(meets)?;
    let what = format!("overlaps bytes of argument {} of the same launch and overwrites them", other.argument);
    Some(Found { kind: FindingKind::Race, argument: WORKSPACE, what })
}

/// The regions of an operand; none for host memory that is not pinned.
fn place(world: &World, asked: &Asked, touch: &Touch) -> Result<Place, Found> {
    let (start, span) = (touch.runs.start, touch.runs.span());
    let fault = |kind, fault: Fault| Found {
        kind,
        argument: touch.argument,
        what: format!("leaves live memory: {}", fault.message),
    };
    let own = &world.cards[asked.card as usize].memory;
    let other = world.cards.iter().map(|card| &card.memory).find(|memory| memory.owns(start));
    let memory = match other {
        Some(memory) if memory.card == own.card || asked.kind != Kind::Kernel => memory,
        Some(memory) => {
            let what = format!("is on card {}, but the stream belongs to card {}", memory.card, own.card);
            return Err(Found { kind: FindingKind::WrongMemory, argument: touch.argument, what });
        }
        None if asked.kind == Kind::Kernel => {
            let what = format!("is {start:#x}, which is not a device address");
            return Err(Found { kind: FindingKind::WrongMemory, argument: touch.argument, what });
        }
        None => {
            let place = pinned(world, start);
            if touch.pinned && place.pieces.is_empty() {
                let what =
                    format!("leaves live memory: the pinned memory at {start:#x} was freed after the call was made");
                return Err(Found { kind: FindingKind::OutOfBounds, argument: touch.argument, what });
            }
            return Ok(place);
        }
    };
    let pieces = memory.pieces(start, span).map_err(|problem| fault(FindingKind::OutOfBounds, problem))?;
    Ok(Place { memory: Some(memory.clone()), pieces })
}

fn pinned(world: &World, start: u64) -> Place {
    let around = world.pinned.around(start);
    let piece = around.map(|(start, region)| Piece { start, bytes: region.bytes, contents: region.contents.clone() });
    Place { memory: None, pieces: piece.into_iter().collect() }
}

/// The first byte of a read that nobody wrote, as a sentence.
fn unwritten(place: &Place, runs: &Runs) -> Option<String> {
    let memory = place.memory.as_ref()?;
    let mut first = None;
    let mut missing = 0u64;
    place.each(runs, &mut |piece, from, to| {
        let mut contents = held(&piece.contents);
        memory.reach(piece, &mut contents, from, to);
        if let Some(at) = contents.written.first_unwritten(from, to) {
            missing += 1;
            first.get_or_insert(at - from + (piece.start + from - runs.start));
        }
    });
    let first = first?;
    let runs = if runs.count() > 1 { format!(", in {missing} of {} runs", runs.count()) } else { String::new() };
    Some(format!("reads memory that was never written: its byte {first}{runs}"))
}

/// What an access of many runs to one region meets; none for another one, and where too many of them are kept.
fn meet_strided(
    world: &World,
    asked: &Asked,
    touch: &Touch,
    place: &Place,
    mark: Option<Mark>,
) -> Option<Option<Conflict>> {
    let [piece] = place.pieces.as_slice() else { return None };
    if !touch.runs.are_many() {
        return None;
    }
    let runs = Runs { start: touch.runs.start - piece.start, ..touch.runs.clone() };
    let Contents { segments, .. } = &mut *held(&piece.contents);
    let conflict = segments.conflict_of(&runs, touch.write, asked.clock);
    let kept = mark.is_none_or(|mark| segments.keep(&runs, mark, touch.write, &world.host));
    kept.then_some(conflict)
}

/// What an access meets, run by run; of many runs the innermost gaps count too.
fn meet_each(world: &World, asked: &Asked, touch: &Touch, place: &Place, mark: Option<Mark>) -> Option<Conflict> {
    let mut conflict: Option<Conflict> = None;
    place.each(&touch.runs.coarse(), &mut |piece, from, to| {
        let Contents { segments, .. } = &mut *held(&piece.contents);
        conflict = conflict.or_else(|| segments.conflict(from, to, touch.write, asked.clock));
        if let Some(mark) = mark {
            segments.sweep(&world.host);
            if touch.write { segments.write(from, to, mark) } else { segments.read(from, to, mark) }
        }
    });
    conflict
}

/// Looks for an access that is not known to be over, and notes this one.
fn meet(world: &World, asked: &Asked, touch: &Touch, place: &Place) -> Option<Found> {
    let mark = asked.mark.map(|mark| Mark { argument: touch.argument, ..mark });
    let conflict = meet_strided(world, asked, touch, place, mark);
    let Conflict { mark: other, writes } = conflict.unwrap_or_else(|| meet_each(world, asked, touch, place, mark))?;
    let does = if touch.write { "writes" } else { "reads" };
    let did = if writes { "writes" } else { "reads" };
    let stream = |actor: u32| format!("stream {actor}");
    let kind = if asked.mark.is_some() { FindingKind::Race } else { FindingKind::HostRace };
    let remedy = if asked.mark.is_some() {
        "record an event there and wait for it here"
    } else {
        "synchronize with that stream first"
    };
    let what = format!(
        "{does} bytes that {} argument {} {did} on {} (call {}), and nothing orders the two: {remedy}",
        other.operator,
        other.argument,
        stream(other.actor),
        other.call,
    );
    Some(Found { kind, argument: touch.argument, what })
}

/// The bytes of a copy's target that will have been written, as those of its source were.
fn carried(places: &[(&Touch, Place)]) -> Option<Vec<(u64, u64)>> {
    let (source, from) = places.iter().find(|(touch, _)| !touch.write)?;
    let (target, _) = places.iter().find(|(touch, _)| touch.write)?;
    let mut targets = Vec::new();
    target.runs.each(&mut |start, _| targets.push(start));
    let mut targets = targets.into_iter();
    let mut carried = Vec::new();
    source.runs.each(&mut |start, bytes| {
        let Some(target) = targets.next() else { return };
        from.each(&Runs::of(start, bytes), &mut |piece, first, end| {
            for (run, run_end) in held(&piece.contents).written.runs(first, end) {
                carried.push((target + (piece.start + run - start), run_end - run));
            }
        });
    });
    Some(carried)
}

/// Work that may still reach a region, as a sentence.
pub fn in_use(world: &World, contents: &crate::memory::Shared, bytes: u64) -> Option<String> {
    let conflict = held(contents).segments.conflict(0, bytes, true, &world.host)?;
    let (mark, does) = (conflict.mark, if conflict.writes { "writes" } else { "reads" });
    Some(format!(
        "frees memory that {} argument {} {does} on stream {} (call {}), which the host has not waited for: \
            synchronize first",
        mark.operator, mark.argument, mark.actor, mark.call,
    ))
}
