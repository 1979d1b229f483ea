//! The front door of a server: one TCP port and one unix socket that speak the `PostgreSQL` protocol and HTTP.
//!
//! Makes a [`Gateway`], which gives each session a backend of [`lease::Leases`] and forwards bytes between the
//! two from then on, unparsed but for the headers of messages. How a database comes about it does not know.
//!
//! In rollback isolation it plays all sessions of a lease in one transaction instead; that is in `rollback`.
//!
//! ```text
//! client ── listener ── session ─┬─ startup ── connect ── forward ── backend
//!                                ├─ cancel request ─────────────────── server
//!                                └─ HTTP ── http
//! ```

mod access;
mod cancel;
mod forward;
mod gateway;
mod http;
mod ledger;
mod listener;
mod presence;
mod recent;
mod refusal;
mod request;
mod rollback;
mod session;
mod span;
mod stream;
mod tap;
mod traces;
mod workers;

pub use access::Access;
pub use gateway::{Failed, Gateway, GatewayError, Options};
pub use lease::Isolation;
pub use ledger::{Entry, Ledger, What};
pub use recent::{Failure, Kept, Ran};
pub use span::parse_span;
pub(crate) use stream::Stream;
