//! The leaf calls of `host` on macOS.
