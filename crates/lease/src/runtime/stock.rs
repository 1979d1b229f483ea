//! Stores how many copies of each template the clients of this run needed, so that
//! the next run on the same cache entry makes as many before its clients arrive.

use std::time::Instant;

use sys::lock;

use crate::runtime::inner::Inner;
use crate::runtime::template::Template;
use crate::table::Source;
use crate::table::supply::FIRST_READY;

/// Prefix for the file names of notes about the number of copies.
pub const NEEDED_COPIES_NOTE: &str = "copies";

impl Inner {
    /// Plans as many copies of each template as previous runs needed before their first clients.
    pub(crate) fn recall_stock(&self) {
        let templates = lock(&self.templates).clone();
        let (mut core, now) = (self.lock(), Instant::now());
        for template in &templates {
            let needed = template.recall_stock(&self.stock_note(template));
            core.table.stock_up(&Source::Template(template.name.clone()), needed, now);
        }
    }

    /// Stores how many copies of each template this run needed before its first client.
    pub(crate) fn note_stock(&self) {
        for template in lock(&self.templates).clone() {
            let needed = self.lock().table.needed_copies(&Source::Template(template.name.clone()));
            template.note_stock(&self.stock_note(&template), needed);
        }
    }

    /// Returns the note's file name. Since a cache entry can contain several templates, the name includes the
    /// template's oid. The name also includes the suite: if a developer runs a single test after the whole suite, that
    /// test shouldn't make the suite's copies.
    fn stock_note(&self, template: &Template) -> String {
        let suite = self.options.suite.as_ref().map_or_else(String::new, |suite| format!("-{suite}"));
        format!("{NEEDED_COPIES_NOTE}-{}{suite}", template.oid)
    }
}

impl Template {
    /// Reads how many copies previous runs needed. Returns 0 if no run has left a note.
    fn recall_stock(&self, note: &str) -> usize {
        let noted = self.entry.as_ref().and_then(|entry| entry.recall(note));
        noted.and_then(|noted| noted.parse().ok()).unwrap_or(0)
    }

    /// Stores how many copies a run needed. If it needed fewer than previous runs, the number falls by only half of the
    /// difference, since the run may have stopped early.
    fn note_stock(&self, note: &str, needed: usize) {
        let Some(entry) = &self.entry else { return };
        let before = self.recall_stock(note);
        let now = needed.max(usize::midpoint(needed, before));
        // Every server starts with a few copies anyway, so don't store such a small number.
        let is_known = now == before || before == 0 && now <= FIRST_READY;
        if !is_known && let Err(error) = entry.remember(note, &now.to_string()) {
            tracing::debug!(%error, template = self.name, "could not save how many copies a run needs");
        }
    }
}
