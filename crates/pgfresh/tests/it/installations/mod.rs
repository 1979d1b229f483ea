//! Tests PostgreSQL installations: how pgfresh finds, downloads and checks them.

mod download;
mod extensions;
mod newer_major;
mod version_managers;
