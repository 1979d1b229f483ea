//! Tests template copies: each copy equals what CREATE DATABASE makes, however pgfresh makes it.

mod ahead;
mod autovacuum;
mod cached_files;
mod changed_templates;
mod standby;
