//! Prepared data directories, named by fingerprint, built once.
