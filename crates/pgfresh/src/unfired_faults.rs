//! Prints messages about faults that never fired.

use gateway::UnfiredFault;
use server::printable;

use crate::notice::notice;

/// Exit code if a fault never fired but everything else succeeded.
pub(crate) const EXIT: u8 = 1;

/// Prints the faults that never fired, with the databases of their tests.
pub(crate) fn print(faults: &[UnfiredFault]) {
    match faults.len() {
        1 => notice!("pgfresh: a fault did not fire"),
        count => notice!("pgfresh: {count} faults did not fire"),
    }
    for UnfiredFault { database, fault } in faults {
        notice!("{}: {}", printable(database), printable(fault));
    }
}
