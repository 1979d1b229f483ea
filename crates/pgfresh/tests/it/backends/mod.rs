//! Backends of the server: which ones wait for clients, which ones pgfresh reuses, and what a client sees of them.

mod own_sessions;
mod pending_signals;
mod pools;
mod prestarted;
mod spares;
mod startup_response;
