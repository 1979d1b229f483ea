//! A box office: sells adjacent seats for events, takes them back, and serves the waiting list in order.

use std::fmt;

use sqlx::{PgPool, PgTransaction};

/// Adjacent seats in a row, starting with `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub row: i32,
    pub first: i32,
    pub seats: i32,
}

/// Seats that a customer has bought.
#[derive(Debug, PartialEq, Eq)]
pub struct Order {
    pub id: i64,
    pub block: Block,
    pub cents: i64,
}

/// Sales of an event.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    pub title: String,
    pub seats: i64,
    pub sold: i64,
    pub cents: i64,
}

/// Reason for refusing a request.
#[derive(Debug)]
pub enum Refusal {
    /// The event or order doesn't exist.
    Unknown,
    /// No row has enough adjacent free seats.
    SoldOut,
    /// Error from the database.
    Database(sqlx::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => formatter.write_str("there is no such thing"),
            Self::SoldOut => formatter.write_str("there are not that many seats side by side"),
            Self::Database(error) => write!(formatter, "the database refuses: {error}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::RowNotFound => Self::Unknown,
            other => Self::Database(other),
        }
    }
}

pub struct BoxOffice {
    pool: PgPool,
}

impl BoxOffice {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Starts the sale for an event. All rows have the same number of seats. The price is for the last row; each row in
    /// front costs a tenth more.
    pub async fn announce(&self, title: &str, rows: i32, seats: i32, cents: i32) -> Result<i64, Refusal> {
        let mut transaction = self.pool.begin().await?;
        let event = sqlx::query_scalar("INSERT INTO events (title) VALUES ($1) RETURNING id")
            .bind(title)
            .fetch_one(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO seats (event, row, seat, cents)
             SELECT $1, row, seat, $4 + $4 * ($2 - row) / 10
             FROM generate_series(1, $2) row, generate_series(1, $3) seat",
        )
        .bind(event)
        .bind(rows)
        .bind(seats)
        .bind(cents)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(event)
    }

    /// Sells this number of adjacent seats, as far in front as possible.
    pub async fn sell(&self, event: i64, email: &str, seats: i32) -> Result<Order, Refusal> {
        let mut transaction = self.pool.begin().await?;
        lock(&mut transaction, event).await?;
        let order = sell(&mut transaction, event, email, seats).await?;
        transaction.commit().await?;
        Ok(order)
    }

    /// Adds a customer to the waiting list, or changes how many seats the customer waits for. Returns the position,
    /// from 1.
    pub async fn wait(&self, event: i64, email: &str, seats: i32) -> Result<i64, Refusal> {
        // After a lost connection, the transaction may have been committed. In this case, a retry doesn't change
        // anything.
        for _ in 1..MAX_ATTEMPTS {
            match self.wait_once(event, email, seats).await {
                Err(Refusal::Database(error)) if passes(&error) => {}
                result => return result,
            }
        }
        self.wait_once(event, email, seats).await
    }

    async fn wait_once(&self, event: i64, email: &str, seats: i32) -> Result<i64, Refusal> {
        let mut transaction = self.pool.begin().await?;
        lock(&mut transaction, event).await?;
        let place = sqlx::query_scalar(
            "WITH mine AS (
                 INSERT INTO waiting (event, email, seats) VALUES ($1, $2, $3)
                 ON CONFLICT (event, email) DO UPDATE SET seats = excluded.seats
                 RETURNING id
             )
             SELECT 1 + count(*) FROM waiting, mine WHERE event = $1 AND waiting.id < mine.id",
        )
        .bind(event)
        .bind(email)
        .bind(seats)
        .fetch_one(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(place)
    }

    /// Takes back the seats of an order, and sells them to the customers on the waiting list, in order. A customer
    /// who waits for more seats than are free keeps waiting, but doesn't block later customers.
    pub async fn cancel(&self, order: i64) -> Result<Vec<Order>, Refusal> {
        let mut transaction = self.pool.begin().await?;
        let event = sqlx::query_scalar("SELECT event FROM orders WHERE id = $1")
            .bind(order)
            .fetch_one(&mut *transaction)
            .await?;
        lock(&mut transaction, event).await?;
        sqlx::query("UPDATE seats SET sold_to = NULL WHERE sold_to = $1")
            .bind(order)
            .execute(&mut *transaction)
            .await?;
        let gone =
            sqlx::query("DELETE FROM orders WHERE id = $1").bind(order).execute(&mut *transaction).await?;
        if gone.rows_affected() == 0 {
            return Err(Refusal::Unknown);
        }
        let sold = serve(&mut transaction, event).await?;
        transaction.commit().await?;
        Ok(sold)
    }

    /// Returns the sales of all events, sorted by title.
    pub async fn report(&self) -> Result<Vec<Line>, Refusal> {
        let lines: Vec<(String, i64, i64, i64)> = sqlx::query_as(
            "SELECT title, count(*), count(sold_to), coalesce(sum(cents) FILTER (WHERE sold_to IS NOT NULL), 0)
             FROM events JOIN seats ON event = id
             GROUP BY id ORDER BY title",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(lines.into_iter().map(|(title, seats, sold, cents)| Line { title, seats, sold, cents }).collect())
    }
}

/// Maximum number of times that a transaction runs.
const MAX_ATTEMPTS: usize = 3;

/// Returns whether a retry may succeed: after a serialization failure, a deadlock, or a lost connection.
fn passes(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(error) => {
            matches!(error.code().as_deref(), Some("40001" | "40P01" | "57P01"))
        }
        _ => false,
    }
}

/// Locks an event, so that its customers are served one after the other.
async fn lock(transaction: &mut PgTransaction<'_>, event: i64) -> Result<(), Refusal> {
    sqlx::query("SELECT FROM events WHERE id = $1 FOR UPDATE")
        .bind(event)
        .fetch_one(&mut **transaction)
        .await?;
    Ok(())
}

async fn sell(
    transaction: &mut PgTransaction<'_>,
    event: i64,
    email: &str,
    seats: i32,
) -> Result<Order, Refusal> {
    // The difference between a seat and its index among the free seats in its row is the same for adjacent seats.
    let free: Option<(i32, i32)> = sqlx::query_as(
        "SELECT row, min(seat) FROM (
             SELECT row, seat, seat - row_number() OVER (PARTITION BY row ORDER BY seat) AS block
             FROM seats WHERE event = $1 AND sold_to IS NULL
         ) free
         GROUP BY row, block HAVING count(*) >= $2
         ORDER BY row, min(seat) LIMIT 1",
    )
    .bind(event)
    .bind(i64::from(seats))
    .fetch_optional(&mut **transaction)
    .await?;
    let (row, first) = free.ok_or(Refusal::SoldOut)?;
    let id: i64 = sqlx::query_scalar("INSERT INTO orders (event, email) VALUES ($1, $2) RETURNING id")
        .bind(event)
        .bind(email)
        .fetch_one(&mut **transaction)
        .await?;
    let cents = sqlx::query_scalar(
        "WITH sold AS (
             UPDATE seats SET sold_to = $1
             WHERE event = $2 AND row = $3 AND seat >= $4 AND seat < $4 + $5
             RETURNING cents
         )
         SELECT sum(cents) FROM sold",
    )
    .bind(id)
    .bind(event)
    .bind(row)
    .bind(first)
    .bind(seats)
    .fetch_one(&mut **transaction)
    .await?;
    Ok(Order { id, block: Block { row, first, seats }, cents })
}

async fn serve(transaction: &mut PgTransaction<'_>, event: i64) -> Result<Vec<Order>, Refusal> {
    let waiting: Vec<(i64, String, i32)> =
        sqlx::query_as("SELECT id, email, seats FROM waiting WHERE event = $1 ORDER BY id")
            .bind(event)
            .fetch_all(&mut **transaction)
            .await?;
    let mut sold = Vec::new();
    for (id, email, seats) in waiting {
        match sell(transaction, event, &email, seats).await {
            Ok(order) => {
                sqlx::query("DELETE FROM waiting WHERE id = $1").bind(id).execute(&mut **transaction).await?;
                sold.push(order);
            }
            Err(Refusal::SoldOut) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(sold)
}
