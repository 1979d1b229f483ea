//! Measures COPY at the maximum rate, over each route to the server.

use std::iter::repeat_n;
use std::time::Instant;

use pgwire::encode;
use report::Contender;
use server::SessionError;

use super::fixture::{DATABASE, ProxyFixture, Route};
use super::pgbench::contender_name;
use crate::BenchError;
use crate::client::Client;

pub(super) const COPY_OUT: &str = "COPY out";
pub(super) const COPY_IN: &str = "COPY in";
/// Size of the rows in a single write, in bytes. The benchmark performs [`WRITES`] such writes.
const BYTES_PER_WRITE: usize = 1 << 20;
const WRITES: usize = 200;
/// Size of a COPY message in bytes, as sent by psql.
const MESSAGE_SIZE: usize = 8192;

/// The rows to copy.
pub(super) struct Rows {
    /// Complete rows for COPY in, as messages. `bytes` is the total size of the rows.
    messages: Vec<u8>,
    bytes: u64,
    /// Size of the rows returned by COPY out, in bytes.
    pub(super) out: u64,
}

impl Rows {
    /// Returns the total size of the rows sent by COPY in, in bytes.
    pub(super) fn bytes_in(&self) -> u64 {
        self.bytes * WRITES as u64
    }
}

/// Creates the table for the rows and returns the rows.
pub(super) fn prepare(fixture: &ProxyFixture) -> Result<Rows, BenchError> {
    let mut client = fixture.address(Route::Socket).connect(DATABASE, &[])?;
    client.query("CREATE UNLOGGED TABLE sink (id int, word text)")?;
    let row = format!("1234567\t{}\n", "x".repeat(88));
    let rows = row.repeat(BYTES_PER_WRITE / row.len()).into_bytes();
    let messages = rows.chunks(MESSAGE_SIZE).flat_map(|rows| encode(b'd', rows)).collect();
    Ok(Rows { messages, bytes: rows.len() as u64, out: copy_out(&mut client)? })
}

/// Copies all rows out of the server, returning their size in bytes.
fn copy_out(client: &mut Client) -> Result<u64, SessionError> {
    let mut copied = 0;
    client.copy_out("COPY pgbench_accounts TO STDOUT", &mut |row| copied += row.len() as u64)?;
    Ok(copied)
}

pub(super) fn contenders<'a>(fixture: &'a ProxyFixture, rows: &'a Rows) -> Vec<Contender<'a, BenchError>> {
    let mut contenders = Vec::new();
    for (route, address) in &fixture.routes {
        contenders.push(Contender::new(contender_name(COPY_OUT, *route), move || {
            let mut client = address.connect(DATABASE, &[])?;
            let begun = Instant::now();
            copy_out(&mut client)?;
            let taken = begun.elapsed();
            client.close()?;
            Ok(vec![("all of it", taken)])
        }));
    }
    for (route, address) in &fixture.routes {
        contenders.push(Contender::new(contender_name(COPY_IN, *route), move || {
            let mut client = address.connect(DATABASE, &[])?;
            client.query("TRUNCATE sink")?;
            let begun = Instant::now();
            client.copy_in("COPY sink FROM STDIN", repeat_n(&rows.messages[..], WRITES))?;
            let taken = begun.elapsed();
            client.close()?;
            Ok(vec![("all of it", taken)])
        }));
    }
    contenders
}
