//! Tests tokio-postgres through the gateway.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::{SinkExt, StreamExt, TryStreamExt, stream};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls};

const LARGE: usize = 64 << 20;

/// Session, and the asynchronous messages from the server.
struct Session {
    client: Client,
    unasked: tokio::sync::mpsc::UnboundedReceiver<AsyncMessage>,
}

async fn connect(config: &Config) -> Session {
    let (client, mut connection) = config.connect(NoTls).await.unwrap();
    let (sender, unasked) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            // The receiver is gone once the test has finished.
            let _ = sender.send(message);
        }
    });
    Session { client, unasked }
}

/// Runs all checks with databases on the server at `url`.
pub(crate) fn keeps_its_promises(url: &str) {
    let mut config: Config = url.parse().unwrap();
    config.dbname("tokio");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all = async {
        any_name_is_a_database(&config).await;
        rows_are_copied_both_ways(&connect(&config).await.client).await.unwrap();
        a_statement_is_cancelled(&config).await;
        queries_need_no_turns(&connect(&config).await.client).await.unwrap();
        news_comes_unasked(&config).await;
        errors_are_recovered_from(&mut connect(&config).await.client).await.unwrap();
        values_may_be_large(&connect(&config).await.client).await.unwrap();
    };
    runtime.block_on(async { tokio::time::timeout(Duration::from_mins(1), all).await }).unwrap();
}

async fn any_name_is_a_database(config: &Config) {
    let session = connect(config.clone().options("-c work_mem=123kB")).await;
    let row = session.client.query_one("SELECT current_database()::text, current_setting('work_mem')", &[]);
    let row = row.await.unwrap();
    assert_eq!((row.get(0), row.get(1)), ("tokio", "123kB"));
}

async fn rows_are_copied_both_ways(client: &Client) -> Result<(), Error> {
    client.batch_execute("CREATE TEMP TABLE t (n int)").await?;
    let rows: Vec<_> = (0..100_000).map(|number| Bytes::from(format!("{number}\n"))).collect();
    let mut copy = pin!(client.copy_in("COPY t FROM STDIN").await?);
    copy.send_all(&mut stream::iter(rows.iter().cloned().map(Ok))).await?;
    assert_eq!(copy.finish().await?, 100_000);
    let out = client.copy_out("COPY (SELECT n FROM t ORDER BY n) TO STDOUT").await?;
    let out: Vec<Bytes> = out.try_collect().await?;
    assert_eq!(out.concat(), rows.concat());
    Ok(())
}

async fn a_statement_is_cancelled(config: &Config) {
    let (session, watcher) = (connect(config).await, connect(config).await);
    let token = session.client.cancel_token();
    let cancel = async {
        let running = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while watcher.client.query_one(running, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
        token.cancel_query(NoTls).await.unwrap();
    };
    let (slept, ()) = tokio::join!(session.client.batch_execute("SELECT pg_sleep(60)"), cancel);
    assert_eq!(slept.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    assert_eq!(session.client.query_one("SELECT 1", &[]).await.unwrap().get::<_, i32>(0), 1);
}

/// The driver sends all queries without waiting for responses.
async fn queries_need_no_turns(client: &Client) -> Result<(), Error> {
    let next = client.prepare("SELECT $1::int + 1").await?;
    let numbers: Vec<i32> = (0..500).collect();
    let rows = try_join_all(numbers.iter().map(|number| {
        let next = &next;
        async move { client.query_one(next, &[number]).await }
    }));
    for (number, row) in numbers.iter().zip(rows.await?) {
        assert_eq!(row.get::<_, i32>(0), number + 1);
    }
    Ok(())
}

async fn news_comes_unasked(config: &Config) {
    let (mut listener, speaker) = (connect(config).await, connect(config).await);
    listener.client.batch_execute("LISTEN news").await.unwrap();
    speaker.client.batch_execute("NOTIFY news, 'X'").await.unwrap();
    let Some(AsyncMessage::Notification(news)) = listener.unasked.recv().await else { panic!("no news") };
    assert_eq!((news.channel(), news.payload()), ("news", "X"));
}

async fn errors_are_recovered_from(client: &mut Client) -> Result<(), Error> {
    for (sql, state) in [
        ("SELECT 1/0", SqlState::DIVISION_BY_ZERO),
        ("SELECT FROM nowhere", SqlState::UNDEFINED_TABLE),
        ("SELEC", SqlState::SYNTAX_ERROR),
    ] {
        let transaction = client.transaction().await?;
        assert_eq!(transaction.query(sql, &[]).await.unwrap_err().code(), Some(&state), "{sql}");
        let after = transaction.query("SELECT 1", &[]).await.unwrap_err();
        assert_eq!(after.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION), "{sql}");
        transaction.rollback().await?;
    }
    assert_eq!(client.query_one("SELECT 1", &[]).await?.get::<_, i32>(0), 1);
    Ok(())
}

async fn values_may_be_large(client: &Client) -> Result<(), Error> {
    let given = vec![0xa7_u8; LARGE];
    let row = client.query_one("SELECT $1::bytea", &[&given]).await?;
    assert!(row.get::<_, &[u8]>(0) == given);
    Ok(())
}
