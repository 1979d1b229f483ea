//! Threads that forward bytes, each with a runtime of its own: a session stays on one, so that a message wakes one
//! thread and no lock is shared.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// What each of them is called.
pub const THREAD: &str = "gateway";
/// Passing on what a client asks takes about a quarter of what clients and server take for it: there is a thread for so many
/// processors. More threads are woken more often, each for fewer sessions.
const PROCESSORS: usize = 4;
/// More threads than this would only take processors away from the server.
const MOST: usize = 4;
/// How long blocking calls may go on after the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The threads, for those who give them work.
#[derive(Debug)]
pub(crate) struct Workers(Vec<Worker>);

#[derive(Debug)]
struct Worker {
    handle: Handle,
    tasks: Arc<AtomicUsize>,
}

/// The threads themselves. Dropping this ends them, and all that they do.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// Each ends when its sender is dropped.
    running: Vec<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts them: as many as can keep up with the server, which has the same processors.
pub(crate) fn start() -> io::Result<(Workers, Threads)> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (mut workers, mut threads) = (Vec::new(), Threads::default());
    for _ in 0..processors.div_ceil(PROCESSORS).min(MOST) {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        workers.push(Worker { handle: runtime.handle().clone(), tasks: Arc::default() });
        let (sender, receiver) = oneshot::channel();
        let thread = thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
            // Nothing is ever sent: it is an error once the sender is dropped.
            if runtime.block_on(receiver).is_err() {
                runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            }
        })?;
        threads.running.push(sender);
        threads.threads.push(thread);
    }
    Ok((Workers(workers), threads))
}

impl Workers {
    /// The one that listens.
    pub(crate) fn first(&self) -> &Handle {
        &self.0[0].handle
    }

    /// Has the least busy thread do it.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        task: impl FnOnce() -> F + Send + 'static,
    ) {
        let Some(worker) = self.0.iter().min_by_key(|worker| worker.tasks.load(Ordering::Relaxed)) else {
            return;
        };
        let busy = Busy::new(&worker.tasks);
        worker.handle.spawn(async move {
            task().await;
            drop(busy);
        });
    }
}

/// Counts a task for as long as it is there.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn new(tasks: &Arc<AtomicUsize>) -> Self {
        tasks.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(tasks))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.running.clear();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the gateway has panicked");
            }
        }
    }
}
