//! What one session of a lease leaves to the next.

use super::settle::Constraints;

/// The one transaction of a lease, as one session leaves it to the next.
#[derive(Debug, Clone)]
pub(crate) struct LeaseTransaction {
    /// Whether it has begun.
    pub(crate) begun: bool,
    /// Whether all sessions so far have left nothing in the backend that its end does not undo. See [`crate::wire::SessionTraces`].
    pub(crate) leaves_nothing: bool,
    /// What is known of the constraints in it.
    pub(super) constraints: Constraints,
}

impl LeaseTransaction {
    /// What of it holds for the next lease, when it was rolled back.
    pub(super) fn of_next_lease(self) -> Self {
        Self { begun: false, constraints: self.constraints.of_template(), ..self }
    }
}

impl Default for LeaseTransaction {
    fn default() -> Self {
        Self { begun: false, leaves_nothing: true, constraints: Constraints::default() }
    }
}
