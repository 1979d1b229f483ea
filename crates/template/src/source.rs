//! Another way to a template than building it: from a place where others have put it.

use std::cell::Cell;
use std::fmt;
use std::time::Instant;

use storage::{Building, Entry};

use crate::error::ProvisionError;
use crate::provisioner::{Provisioner, Step};
use crate::{About, Fingerprint, TemplateSpec, about, cached};

/// What came of looking for a template elsewhere.
pub enum Sought {
    /// It is in the cache.
    Fetched(Entry),
    /// It is to be built. Others wait for it instead of building it, too, until what is in here is dropped.
    Missing(Option<Box<dyn Send>>),
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub enum SeekStep {
    /// Another machine builds it.
    Waiting,
    /// It comes; told again and again.
    Receiving {
        /// Bytes that have come.
        done: u64,
        /// Of so many.
        total: u64,
    },
}

/// Where templates may come from, and where they may go once they are built.
pub trait TemplateSource: fmt::Debug + Send + Sync {
    /// Brings the template into the cache, if it is there and has at most `limit` bytes, or if another machine is building it.
    ///
    /// # Errors
    /// Why not, in one line; it can be built then.
    fn fetch(
        &self,
        fingerprint: &str,
        building: &Building,
        limit: u64,
        progress: &dyn Fn(SeekStep),
    ) -> Result<Sought, String>;

    /// Takes a template that was built here, if it takes any; the bytes that were sent.
    ///
    /// # Errors
    /// Why not, in one line.
    fn offer(&self, entry: &Entry, progress: &dyn Fn(u64, u64)) -> Result<Option<u64>, String>;
}

impl Provisioner {
    /// Gets the template that is missing here from elsewhere, if it is there.
    pub(crate) fn fetch(
        &self,
        (spec, fingerprint): (&TemplateSpec, &Fingerprint),
        building: &Building,
        say: &dyn Fn(Step<'_>),
    ) -> Result<Sought, ProvisionError> {
        // One that comes from elsewhere may have been built on another.
        let Some(source) = self.source.as_ref().filter(|_| !self.server_options().full) else {
            return Ok(Sought::Missing(None));
        };
        let (name, begun, total) = (&spec.name, Cell::new(Instant::now()), Cell::new(0));
        let waited = Cell::new(false);
        let progress = |step| match step {
            SeekStep::Waiting => {
                waited.set(true);
                say(Step::WaitingForMachine { name });
            }
            SeekStep::Receiving { done, total: all } => {
                if waited.take() {
                    begun.set(Instant::now());
                }
                total.set(all);
                say(Step::Fetching { name, done, total: all });
            }
        };
        match source.fetch(fingerprint.as_str(), building, self.cache_size(), &progress) {
            Ok(missing @ Sought::Missing(_)) => Ok(missing),
            Err(why) => {
                say(Step::NotFetched { name, why: &why });
                Ok(Sought::Missing(None))
            }
            Ok(Sought::Fetched(entry)) => {
                say(Step::Fetched { name, bytes: total.get(), took: begun.get().elapsed().as_secs_f64() });
                if let Some(about) = About::parse(&entry.about()) {
                    about::remember(&self.cache, spec, &about.fingerprint_inputs)?;
                }
                for evicted in cached::evict(&self.cache, self.cache_size())? {
                    say(Step::Evicted(&evicted));
                }
                Ok(Sought::Fetched(entry))
            }
        }
    }

    /// Offers a template that was built here to others.
    pub(crate) fn offer(&self, spec: &TemplateSpec, entry: &Entry, say: &dyn Fn(Step<'_>)) {
        let Some(source) = &self.source else { return };
        let (name, begun) = (&spec.name, Instant::now());
        match source.offer(entry, &|done, total| say(Step::Pushing { name, done, total })) {
            Ok(None) => {}
            Ok(Some(bytes)) => say(Step::Pushed { name, bytes, took: begun.elapsed().as_secs_f64() }),
            Err(why) => say(Step::NotPushed { name, why: &why }),
        }
    }
}
