//! Runs statements with tokio-postgres, and prints how they fail.

use std::time::Duration;

use tokio_postgres::{Client, Error, IsolationLevel, NoTls};

use super::drivers::{Program, Scenario};

/// Program that uses tokio-postgres in this process.
pub(super) struct Tokio;

impl Program for Tokio {
    fn observe<'a>(
        &mut self,
        scenario: &Scenario,
        url: &str,
        provoke: Box<dyn FnOnce() + 'a>,
    ) -> Vec<String> {
        // The runtime runs the connection in another thread, while `provoke` blocks this thread.
        let runtime =
            ::tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async { play(scenario, url, provoke).await })
    }
}

fn seen(name: &str, result: Result<impl Sized, Error>) -> String {
    let Err(error) = result else { return format!("{name} ok") };
    let Some(server) = error.as_db_error() else {
        return format!("{name} {error}, closed: {}", error.is_closed());
    };
    let others = [server.detail(), server.hint(), server.routine()].map(Option::unwrap_or_default);
    let (severity, code, message) = (server.severity(), server.code().code(), server.message());
    format!("{name} {error} {severity} {code} {message} {}", others.join(" "))
}

async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    ::tokio::spawn(connection);
    Ok(client)
}

async fn play(scenario: &Scenario, url: &str, provoke: Box<dyn FnOnce() + '_>) -> Vec<String> {
    let mut client = connect(url).await.unwrap();
    let mut lines = Vec::new();
    if scenario.failing == "CONNECT" {
        provoke();
        lines.push(seen("connect", connect(url).await));
    } else if scenario.level == "none" {
        client.execute(scenario.first, &[]).await.unwrap();
        provoke();
        lines.push(seen("statement", client.execute(scenario.failing, &[]).await));
    } else {
        let level = match scenario.level {
            "serializable" => IsolationLevel::Serializable,
            "repeatable read" => IsolationLevel::RepeatableRead,
            _ => IsolationLevel::ReadCommitted,
        };
        let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
        transaction.execute(scenario.first, &[]).await.unwrap();
        provoke();
        if scenario.failing == "COMMIT" {
            lines.push(seen("commit", transaction.commit().await));
        } else {
            lines.push(seen("statement", transaction.execute(scenario.failing, &[]).await));
            lines.push(seen("in transaction", transaction.execute("SELECT 1", &[]).await));
            lines.push(seen("rollback", transaction.rollback().await));
        }
    }
    // The driver might notice the end of the connection slightly later than the error.
    ::tokio::time::sleep(Duration::from_millis(100)).await;
    lines.push(format!("closed {}", client.is_closed()));
    lines.push(seen("select", client.execute("SELECT 1", &[]).await));
    lines
}
