//! Describes the machine and its load with calls that all systems have.

/// Returns the load averages over 1, 5 and 15 minutes, separated by spaces. Returns `None` if the system doesn't
/// report them. Source: getloadavg(3).
#[must_use]
#[allow(unsafe_code)]
pub fn load_average() -> Option<String> {
    let mut loads = [0.0; 3];
    // SAFETY: the call writes at most three numbers.
    let count = unsafe { libc::getloadavg(loads.as_mut_ptr(), 3) };
    (count == 3).then(|| loads.map(|load| format!("{load:.2}")).join(" "))
}

/// Returns the number of clock ticks per second, the unit of processor times in `/proc`.
#[must_use]
pub fn clock_ticks() -> u64 {
    rustix::param::clock_ticks_per_second()
}
