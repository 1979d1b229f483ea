//! Tests waiting backends: which ones wait for clients, which ones pgfresh reuses, and what a client notices.

mod own_sessions;
mod pending_signals;
mod pools;
mod prestarted;
mod spares;
mod startup_response;
