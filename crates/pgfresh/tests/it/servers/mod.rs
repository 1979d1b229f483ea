//! Servers of pgfresh: their end, and how libpq finds them from inside and outside.

mod killed_postmaster;
mod libpq_inside;
mod libpq_variables;
