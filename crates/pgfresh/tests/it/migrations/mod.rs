//! `migrate`: what the statements of a migration lock, scan and rewrite.

mod observing;
mod summary;
