//! COPY over each way: as many bytes as there can be.

use std::time::Instant;

use report::Contender;

use super::fixture::{DATABASE, ProxyFixture, Way};
use super::pgbench::contender;
use crate::BenchError;
use crate::client::Client;

pub(super) const OUT: &str = "COPY out";
pub(super) const IN: &str = "COPY in";
/// Bytes that go in with one message or a few, and how often.
const ROWS: usize = 1 << 20;
const TIMES: u32 = 200;

/// What is copied.
pub(super) struct Rows {
    /// For the way in.
    rows: Vec<u8>,
    /// Bytes of all that comes out.
    pub(super) out: u64,
}

impl Rows {
    /// Bytes of all that goes in.
    pub(super) fn bytes_in(&self) -> u64 {
        self.rows.len() as u64 * u64::from(TIMES)
    }
}

/// Makes the table that is copied into.
pub(super) fn prepare(fixture: &ProxyFixture) -> Result<Rows, BenchError> {
    let mut client = Client::open(fixture.address(Way::Socket), DATABASE, &[])?;
    client.query("CREATE UNLOGGED TABLE sink (id int, word text)")?;
    let row = format!("1234567\t{}\n", "x".repeat(88));
    let rows = row.repeat(ROWS / row.len()).into_bytes();
    let out = client.query("COPY pgbench_accounts TO STDOUT")?;
    Ok(Rows { rows, out })
}

pub(super) fn contenders<'a>(fixture: &'a ProxyFixture, rows: &'a Rows) -> Vec<Contender<'a, BenchError>> {
    let mut contenders = Vec::new();
    for (way, address) in &fixture.ways {
        contenders.push(Contender::new(contender(OUT, *way), move || {
            let mut client = Client::open(address, DATABASE, &[])?;
            let begun = Instant::now();
            client.query("COPY pgbench_accounts TO STDOUT")?;
            let taken = begun.elapsed();
            client.close()?;
            Ok(vec![("all of it", taken)])
        }));
    }
    for (way, address) in &fixture.ways {
        contenders.push(Contender::new(contender(IN, *way), move || {
            let mut client = Client::open(address, DATABASE, &[])?;
            client.query("TRUNCATE sink")?;
            let begun = Instant::now();
            client.copy_in("COPY sink FROM STDIN", &rows.rows, TIMES)?;
            let taken = begun.elapsed();
            client.close()?;
            Ok(vec![("all of it", taken)])
        }));
    }
    contenders
}
