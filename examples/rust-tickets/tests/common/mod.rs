use std::ops::Deref;

use pgfresh_test::{Database, Options};
use sqlx::PgPool;
use tickets::BoxOffice;

/// A box office for one test, without events.
pub struct Fresh {
    office: BoxOffice,
    // Some test files don't use this field.
    #[allow(dead_code)]
    pub database: Database,
}

pub async fn open() -> Fresh {
    open_with(&Options::default()).await
}

/// Opens a box office in a database that is leased with `options`.
pub async fn open_with(options: &Options) -> Fresh {
    let database = options.lease().unwrap();
    let pool = PgPool::connect(database.url()).await.unwrap();
    Fresh { office: BoxOffice::new(pool), database }
}

impl Deref for Fresh {
    type Target = BoxOffice;

    fn deref(&self) -> &BoxOffice {
        &self.office
    }
}
