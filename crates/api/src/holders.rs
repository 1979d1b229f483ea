//! Ends leases when a client's connection closes, even if the client crashes.
//!
//! A *holder* is a client that keeps one request (`GET /v1/hold`) open, and sends its holder name whenever it leases a
//! database. When the open request's connection closes, pgfresh releases all of the holder's databases.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use contract::{ErrorCode, HoldResponse, Remedy};
use futures_util::stream;
use lease::cut;
use serde_json::json;
use sys::lock;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::SharedState;
use crate::blocking::release_abandoned;
use crate::problem::Problem;

/// The connected holders, and the databases that each has leased.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<HolderTable>);

#[derive(Debug, Default)]
struct HolderTable {
    serial: u64,
    /// Makes holder names unique across servers, because a client must not lease for the holder of an earlier server.
    random: RandomState,
    leases: HashMap<String, Vec<String>>,
}

impl Holders {
    fn enter(&self) -> String {
        let mut table = lock(&self.0);
        table.serial += 1;
        let holder = format!("h{}-{:016x}", table.serial, table.random.hash_one(table.serial));
        table.leases.insert(holder.clone(), Vec::new());
        holder
    }

    fn leave(&self, holder: &str) -> Vec<String> {
        lock(&self.0).leases.remove(holder).unwrap_or_default()
    }

    /// Detaches `database` from its holder, so that the lease survives when the holder disconnects.
    pub(crate) fn forget(&self, database: &str) {
        for leases in lock(&self.0).leases.values_mut() {
            leases.retain(|leased| leased != cut(database));
        }
    }

    /// Records that `holder` has leased `database`.
    ///
    /// # Errors
    ///
    /// Returns 409 if the holder doesn't exist, for example because it has disconnected.
    pub(crate) fn note(&self, holder: &str, database: &str) -> Result<(), Problem> {
        let gone = || {
            let what = format!("holder \"{holder}\" does not exist");
            Problem::new(StatusCode::CONFLICT, ErrorCode::WrongState, what).hint(
                Remedy::BeginHold,
                "GET /v1/hold creates a holder, which lasts as long as that request's connection.",
            )
        };
        lock(&self.0).leases.get_mut(holder).ok_or_else(gone)?.push(database.to_owned());
        Ok(())
    }
}

/// `GET /v1/hold`: sends one line of JSON with the holder's name and then leaves the response open until the client
/// closes the connection.
pub(crate) async fn hold(State(api): SharedState) -> impl IntoResponse {
    let (sender, mut lines) = mpsc::channel(1);
    tokio::spawn(async move {
        let holder = api.holders.enter();
        let line = HoldResponse { holder: holder.clone() };
        let line = json!(line).to_string() + "\n";
        // A client that disconnects before receiving this line doesn't know its name, so it has no leases.
        if sender.send(Bytes::from(line)).await.is_ok() {
            sender.closed().await;
        }
        let theirs = api.holders.leave(&holder);
        spawn_blocking(move || theirs.iter().for_each(|name| release_abandoned(&api.leases, name)));
    });
    let lines =
        stream::poll_fn(move |context| lines.poll_recv(context).map(|line| line.map(Ok::<_, Infallible>)));
    ([(CONTENT_TYPE, "application/json")], Body::from_stream(lines))
}
