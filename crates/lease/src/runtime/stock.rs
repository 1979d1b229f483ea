//! Tells the next run on the same cache entry how many copies of each template to make before its clients come.

use std::time::Instant;

use sys::lock;

use crate::runtime::inner::Inner;
use crate::runtime::template::Template;
use crate::table::Source;

/// File names of notes about the number of copies begin with this word.
pub const NEEDED_COPIES_NOTE: &str = "copies";

impl Inner {
    /// Plans as many copies of each template as the last runs needed before their first clients.
    pub(crate) fn recall_stock(&self) {
        let templates = lock(&self.templates).clone();
        let (mut core, now) = (self.lock(), Instant::now());
        for template in &templates {
            core.table.stock_up(&Source::Template(template.name.clone()), template.recall_stock(), now);
        }
    }

    /// Notes how many copies of each template this run needed before its first client.
    pub(crate) fn note_stock(&self) {
        for template in lock(&self.templates).clone() {
            let needed = self.lock().table.needed_copies(&Source::Template(template.name.clone()));
            template.note_stock(needed);
        }
    }
}

impl Template {
    /// Reads the number of copies that the last runs needed. Returns 0 if no run noted any.
    fn recall_stock(&self) -> usize {
        let noted = self.entry.as_ref().and_then(|entry| entry.recall(&self.stock_note()));
        noted.and_then(|noted| noted.parse().ok()).unwrap_or(0)
    }

    /// Notes the number of copies that a run needed. If it needed fewer than the runs before it, the number falls only by half of the
    /// difference. A developer may run a single test now and the whole suite next.
    fn note_stock(&self, needed: usize) {
        let Some(entry) = &self.entry else { return };
        let before = self.recall_stock();
        let now = needed.max(usize::midpoint(needed, before));
        if now != before
            && let Err(error) = entry.remember(&self.stock_note(), &now.to_string())
        {
            tracing::debug!(%error, template = self.name, "could not note how many copies a run needs");
        }
    }

    /// Returns the file name of the note. It contains the template's oid, because a cache entry can contain several templates.
    fn stock_note(&self) -> String {
        format!("{NEEDED_COPIES_NOTE}-{}", self.oid)
    }
}
