//! File systems that only one process tree sees.
