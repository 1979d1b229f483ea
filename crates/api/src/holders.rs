//! Holders: clients whose leases end with one connection of theirs, however that ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::Api;
use crate::answer::{Body, Problem, typed};

/// Those who are there, with the databases that they have leased.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    serial: u64,
    leases: HashMap<String, Vec<String>>,
}

impl Holders {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> String {
        let mut state = self.lock();
        state.serial += 1;
        let holder = format!("h{}", state.serial);
        state.leases.insert(holder.clone(), Vec::new());
        holder
    }

    fn leave(&self, holder: &str) -> Vec<String> {
        self.lock().leases.remove(holder).unwrap_or_default()
    }

    /// Whoever has leased `database`, it no longer ends with them.
    pub(crate) fn forget(&self, database: &str) {
        for leases in self.lock().leases.values_mut() {
            leases.retain(|leased| leased != database);
        }
    }

    /// Notes that `holder` has leased `database`.
    ///
    /// # Errors
    /// 409 if it is not there, or not any more.
    pub(crate) fn note(&self, holder: &str, database: &str) -> Result<(), Problem> {
        let gone = || {
            let what = format!("holder \"{holder}\" is not there");
            Problem::new(StatusCode::CONFLICT, "55000", what)
                .hint("GET /v1/hold makes one, for as long as it lasts.")
        };
        self.lock().leases.get_mut(holder).ok_or_else(gone)?.push(database.to_owned());
        Ok(())
    }
}

/// `GET /v1/hold`: one line of JSON that names the holder, and then nothing until the client goes away.
pub(crate) fn hold(api: &Arc<Api>) -> Response<Body> {
    let (sender, pieces) = mpsc::channel(1);
    let api = Arc::clone(api);
    tokio::spawn(async move {
        let holder = api.holders.enter();
        let _ = sender.send(Bytes::from(json!({ "holder": holder }).to_string() + "\n")).await;
        sender.closed().await;
        let theirs = api.holders.leave(&holder);
        let leases = api.leases.clone();
        spawn_blocking(move || {
            for name in theirs {
                // Most have been released before.
                let _ = leases.release(&name);
            }
        });
    });
    typed("application/json", Body::Stream(pieces))
}
