//! Time of sessions, and what of it counts for the user who waits.

/// Seconds, counted in two ways.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Time {
    /// Of the wall clock, divided among all that were at work.
    pub wall: f64,
    /// Of sessions.
    pub sessions: f64,
    /// By which all would be over sooner without it.
    pub saved: f64,
}

impl Time {
    /// `seconds` of one session, among so many at work then, and as a rule around then.
    pub(crate) fn add(&mut self, seconds: f64, among: f64, width: f64) {
        self.wall += seconds / among;
        self.sessions += seconds;
        self.saved += seconds / among.max(width);
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.wall += other.wall;
        self.sessions += other.sessions;
        self.saved += other.saved;
    }

    /// The part of `is` that this was of `was`.
    pub(crate) fn scaled(self, was: Self, is: Self) -> Self {
        let part = |of: f64, was: f64, is: f64| if was > 0.0 { of / was * is } else { 0.0 };
        Self {
            wall: part(self.wall, was.wall, is.wall),
            sessions: part(self.sessions, was.sessions, is.sessions),
            saved: part(self.saved, was.saved, is.saved),
        }
    }

    /// The same with as much saved of each second as of `seen`, or all divided by `width` where nothing was seen.
    pub(crate) fn saving_like(self, seen: Self, width: f64) -> Self {
        let each = if seen.sessions > 0.0 { seen.saved / seen.sessions } else { 1.0 / width };
        Self { saved: self.sessions * each, ..self }
    }
}
