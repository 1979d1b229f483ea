//! Samples, intervals and tables, for a terminal or a program.
