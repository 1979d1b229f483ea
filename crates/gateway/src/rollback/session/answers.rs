//! Processes the server's messages: responses to injected statements, and messages for the client.

use pgwire::HEADER;

use super::RollbackSession;
use crate::rollback::message::{SYNTAX_ABORT, SYNTAX_UNDO, adapt_error, field, transaction_lost, values};
use crate::rollback::task::{Awaited, Disposition, InjectedStatement, Task};

impl RollbackSession {
    /// Decides what to do with the server's next message, given its tag.
    pub(in crate::rollback) fn server_head(&mut self, tag: u8) -> Disposition {
        match tag {
            b'Z' | b'C' | b'E' | b'G' | b'1' | b'S' => return Disposition::Whole,
            // If an injected statement causes a notice, the client must receive it before the delayed CommandComplete.
            b'N' | b'A' if matches!(self.awaited.front(), Some(Awaited::Injected(_))) => {
                return Disposition::Pass;
            }
            _ => {}
        }
        match self.awaited.front() {
            Some(Awaited::Injected(_)) if tag == b'D' => Disposition::Whole,
            Some(Awaited::Injected(_)) => Disposition::Drop,
            _ => {
                self.flush_delayed_completion();
                Disposition::Pass
            }
        }
    }

    /// Processes a complete message from the server.
    pub(in crate::rollback) fn server_message(&mut self, bytes: &[u8]) {
        let (tag, body) = (bytes[0], &bytes[HEADER..]);
        let ours = matches!(self.awaited.front(), Some(Awaited::Injected(_)));
        match tag {
            b'Z' => self.server_ready(body.first().copied().unwrap_or_default()),
            b'S' => {
                match body {
                    b"standard_conforming_strings\0on\0" => self.backslashes = false,
                    b"standard_conforming_strings\0off\0" => self.backslashes = true,
                    _ => {}
                }
                if let Some(report) = self.parameters.record_report(bytes, ours) {
                    self.send_to_client(report);
                }
            }
            b'D' => self.rows.push(values(body)),
            b'E' if field(bytes, b'V') == Some(b"FATAL") => {
                self.has_fatal_error = true;
                self.send_to_client(bytes);
            }
            b'E' if ours => self.error = Some(bytes.to_vec()),
            _ if ours => {}
            b'C' if self.awaited.front() == Some(&Awaited::Part) => {
                self.flush_delayed_completion();
                self.delayed_completion = bytes.to_vec();
            }
            b'E' => {
                (self.failed, self.copying) = (true, false);
                self.flush_delayed_completion();
                let adapt_error = adapt_error(bytes, self.offset, !self.in_transaction, self.has_held_cursor);
                self.to_client.extend_from_slice(&adapt_error);
                self.close_group();
            }
            _ => {
                match tag {
                    b'1' => self.names.parsed(),
                    b'G' => self.begin_copy(),
                    _ => {}
                }
                self.send_to_client(bytes);
            }
        }
        self.perform_tasks();
    }

    /// Starts forwarding COPY data to the server. If the session has already sent the group's Sync, the server ignores
    /// it during the COPY, so the group is open again.
    fn begin_copy(&mut self) {
        self.copying = !std::mem::take(&mut self.copy_data_complete);
        if !self.copying {
            return;
        }
        if self.awaited.front() == Some(&Awaited::Group) && !self.open {
            if self.tasks.iter().any(|task| *task != Task::End) {
                self.fail_with_protocol_error("a transaction was to end during COPY from stdin".to_owned());
            }
            self.tasks.clear();
            (self.open, self.awaits_ready) = (true, false);
        }
    }

    fn server_ready(&mut self, status: u8) {
        let awaited = self.awaited.pop_front();
        let restored = if awaited == Some(Awaited::Injected(InjectedStatement::Release)) {
            std::mem::take(&mut self.restored)
        } else {
            Vec::new()
        };
        // Immediate reports come before the command tag of the statement that caused them, but after an error.
        let mut reports = self.parameters.server_is_ready(&restored);
        self.status = status;
        if self.transaction.begun && status == b'I' {
            self.broken = Some(transaction_lost());
        }
        if let Some(Awaited::Injected(ours)) = awaited {
            let error = self.error.take();
            if error.is_none() {
                self.to_client.append(&mut reports);
            }
            self.injected_statement_done(ours, error);
            return self.to_client.append(&mut reports);
        }
        (self.copying, self.copy_data_complete) = (false, false);
        if std::mem::take(&mut self.failed) {
            self.fail();
        }
    }

    fn injected_statement_done(&mut self, ours: InjectedStatement, error: Option<Vec<u8>>) {
        let mut rows = std::mem::take(&mut self.rows).into_iter();
        let mut first = || rows.next().unwrap_or_default();
        match (ours, error) {
            (InjectedStatement::Required | InjectedStatement::Silent, Some(error)) => {
                let message = field(&error, b'M').unwrap_or_default();
                self.broken = Some(transaction_lost().detail(String::from_utf8_lossy(message).into_owned()));
            }
            // The syntax is correct: the server only complains about there being several statements. Source:
            // `exec_parse_message`.
            (InjectedStatement::Syntax { saved }, Some(error))
                if field(&error, b'R') != Some(b"exec_parse_message") =>
            {
                self.send_to_client(&error);
                self.fail();
                if saved && self.in_transaction {
                    self.prepend_tasks([Task::Inject(
                        SYNTAX_ABORT.map(str::to_owned).to_vec(),
                        InjectedStatement::Abort,
                    )]);
                }
            }
            (
                InjectedStatement::Required | InjectedStatement::Silent | InjectedStatement::LargeObjects,
                None,
            )
            | (InjectedStatement::Syntax { saved: false } | InjectedStatement::Abort, _) => {}
            (InjectedStatement::Syntax { saved: true }, _) | (InjectedStatement::LargeObjects, Some(_)) => {
                let undo = SYNTAX_UNDO.map(str::to_owned).to_vec();
                self.prepend_tasks([Task::Inject(undo, InjectedStatement::Required)]);
            }
            (_, Some(error)) => self.commit_failed(&error),
            (InjectedStatement::CommitState, None) => self.commit_state_read(rows),
            (InjectedStatement::Constraints, None) => self.constraints_read(first(), rows),
            (InjectedStatement::Release, None) => self.released(),
            (InjectedStatement::ReadOnly, None) => {
                self.read_only = first().first() == Some(&Some("on".to_owned()));
            }
            (InjectedStatement::Settings, None) => self.settings.read(rows),
            (InjectedStatement::Sources, None) => _ = self.sources_read(rows),
            (InjectedStatement::SettingsAtEnd, None) => self.settings_at_end = rows.collect(),
        }
    }

    /// Handles a failed client statement, rolling it back if the client is in no transaction.
    pub(in crate::rollback) fn fail(&mut self) {
        self.tasks.clear();
        self.names.failed();
        if !self.in_transaction && self.has_savepoint() {
            self.tasks.push_back(Task::Undo);
        }
        if self.awaits_ready {
            self.tasks.push_back(Task::Ready);
        } else {
            self.skipping = true;
        }
    }
}
