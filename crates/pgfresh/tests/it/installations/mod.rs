//! Installations of PostgreSQL: how pgfresh finds, downloads and judges them.

mod download;
mod newer_major;
mod version_managers;
