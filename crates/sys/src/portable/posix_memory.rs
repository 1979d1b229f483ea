//! Leaves POSIX shared memory to the server. No POSIX call prevents a program from creating a segment.

use std::process::Command;

/// Changes nothing. An initdb that is killed can leave a segment of shared memory.
pub fn refuse_posix_segments(_command: &mut Command) {}
