//! Examples of the table, one at a time.
