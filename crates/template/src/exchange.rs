//! Exchanges templates with a source, such as a remote, so that only one machine has to build each template. Missing
//! templates are fetched, and new ones are offered.

use std::cell::Cell;
use std::time::Instant;

use storage::{Building, Entry};

use crate::error::ProvisionError;
use crate::provisioner::{Provisioner, Step};
use crate::source::{FetchProgress, FetchResult};
use crate::{EntryDescription, Fingerprint, TemplateSpec, cached, description};

impl Provisioner {
    /// Tries to fetch a missing template from the source, if any.
    pub(crate) fn fetch(
        &self,
        spec: &TemplateSpec,
        fingerprint: &Fingerprint,
        building: &Building,
        report: &dyn Fn(Step<'_>),
    ) -> Result<FetchResult, ProvisionError> {
        // A fetched template may be the result of an incremental build, which `full` forbids.
        let Some(source) = self.source.as_ref().filter(|_| !self.server_options().full) else {
            return Ok(FetchResult::Missing(None));
        };
        let (name, begun, total) = (&spec.title(), Cell::new(Instant::now()), Cell::new(0));
        let waited = Cell::new(false);
        let progress = |step| match step {
            FetchProgress::Waiting => {
                waited.set(true);
                report(Step::WaitingForMachine { name });
            }
            FetchProgress::Receiving { done, total: all } => {
                if waited.take() {
                    begun.set(Instant::now());
                }
                total.set(all);
                report(Step::Fetching { name, done, total: all });
            }
        };
        // If the user has set no limit, the template may use all free space, just as a build could.
        let limit = self.server_options().cache_size.unwrap_or(u64::MAX);
        match source.fetch(fingerprint.as_str(), building, limit, &progress) {
            Ok(missing @ FetchResult::Missing(_)) => Ok(missing),
            Err(error) => {
                report(Step::NotFetched { name, why: &error.to_string() });
                Ok(FetchResult::Missing(None))
            }
            Ok(FetchResult::Fetched(entry)) => {
                let took = begun.get().elapsed().as_secs_f64();
                report(Step::Fetched { name, bytes: total.get(), took });
                if let Some(about) = EntryDescription::parse(&entry.about()) {
                    description::save_inputs(&self.cache, spec, &about.fingerprint_inputs)?;
                }
                for evicted in cached::evict(&self.cache, self.cache_size())? {
                    report(Step::Evicted(&evicted));
                }
                Ok(FetchResult::Fetched(entry))
            }
        }
    }

    /// Offers the source a template built on this machine.
    pub(crate) fn offer(&self, spec: &TemplateSpec, entry: &Entry, report: &dyn Fn(Step<'_>)) {
        let Some(source) = &self.source else { return };
        let (name, begun) = (&spec.title(), Instant::now());
        match source.offer(entry, &|done, total| report(Step::Pushing { name, done, total })) {
            Ok(None) => {}
            Ok(Some(bytes)) => report(Step::Pushed { name, bytes, took: begun.elapsed().as_secs_f64() }),
            Err(error) => report(Step::NotPushed { name, why: &error.to_string() }),
        }
    }
}
