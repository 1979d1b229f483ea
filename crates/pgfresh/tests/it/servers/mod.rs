//! Tests pgfresh's servers: how they end, and how libpq finds them from inside and outside.

mod internal_error;
mod killed_postmaster;
mod libpq_inside;
mod libpq_variables;
