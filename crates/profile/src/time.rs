//! Represents session time, and how much of it the user has to wait for.

/// A number of seconds, counted in three ways.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Time {
    /// Wall time, which divides each moment among the sessions at work.
    pub wall: f64,
    /// Session time, which counts each moment once for every session at work.
    pub sessions: f64,
    /// Estimate of how much shorter the whole duration would be without this work.
    pub saved: f64,
}

impl Time {
    /// Adds `seconds` of one session, while `among` sessions were at work. `width` is the usual number of sessions at
    /// work.
    pub(crate) fn add(&mut self, seconds: f64, among: f64, width: f64) {
        self.wall += seconds / among;
        self.sessions += seconds;
        self.saved += seconds / among.max(width);
    }

    pub(crate) fn add_time(&mut self, other: Self) {
        self.wall += other.wall;
        self.sessions += other.sessions;
        self.saved += other.saved;
    }

    /// Multiplies each of the three times by the ratio of `is` to `was`.
    pub(crate) fn scale(self, was: Self, is: Self) -> Self {
        let part = |of: f64, was: f64, is: f64| if was > 0.0 { of / was * is } else { 0.0 };
        Self {
            wall: part(self.wall, was.wall, is.wall),
            sessions: part(self.sessions, was.sessions, is.sessions),
            saved: part(self.saved, was.saved, is.saved),
        }
    }

    /// Sets the saved time to the same fraction of the session time as in `seen`. If `seen` is empty, the session time
    /// is divided by `width` instead.
    pub(crate) fn with_savings_of(self, seen: Self, width: f64) -> Self {
        let each = if seen.sessions > 0.0 { seen.saved / seen.sessions } else { 1.0 / width };
        Self { saved: self.sessions * each, ..self }
    }
}
