//! Where data directories live, how they are copied, and the cache they come from.
