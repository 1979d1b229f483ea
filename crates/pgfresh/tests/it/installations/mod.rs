//! Installations of PostgreSQL: how pgfresh finds, downloads and judges them.

mod download;
mod extensions;
mod newer_major;
mod version_managers;
