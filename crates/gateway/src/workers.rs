//! Runs worker threads that forward bytes, each with its own runtime.
//!
//! A session stays on one thread, so a message wakes only that thread, and the threads share no lock.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Name of each worker thread.
pub const THREAD_NAME: &str = "gateway";
/// Number of processors per thread. One thread can keep up with this many processors, because the client and the server
/// together spend about four times as long on a request as the gateway does. With more threads, each would wake more
/// often for fewer sessions.
const PROCESSORS_PER_THREAD: usize = 4;
/// Maximum number of threads. More threads would only take processors away from the server.
const MAX_THREADS: usize = 4;
/// How long to wait for blocking calls after the gateway has closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Handles for assigning work to the threads.
#[derive(Debug)]
pub(crate) struct Workers(Vec<Worker>);

#[derive(Debug)]
struct Worker {
    handle: Handle,
    tasks: Arc<AtomicUsize>,
}

/// The worker threads. Dropping this value cancels all of their tasks.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// One sender for each thread. Dropping a sender shuts down its thread.
    running: Vec<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts as many threads as are needed to keep up with a server on the same processors.
pub(crate) fn start() -> io::Result<(Workers, Threads)> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (mut workers, mut threads) = (Vec::new(), Threads::default());
    for _ in 0..processors.div_ceil(PROCESSORS_PER_THREAD).min(MAX_THREADS) {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        workers.push(Worker { handle: runtime.handle().clone(), tasks: Arc::default() });
        let (sender, receiver) = oneshot::channel();
        let thread = thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
            // The sender never sends anything. Dropping it makes the receiver return an error, which shuts down this
            // thread.
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
    /// Returns the worker that listens for connections.
    pub(crate) fn first(&self) -> &Handle {
        &self.0[0].handle
    }

    /// Runs a task on the thread with the fewest tasks.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        task: impl FnOnce() -> F + Send + 'static,
    ) {
        let Some(worker) = self.0.iter().min_by_key(|worker| worker.tasks.load(Ordering::Relaxed)) else {
            return;
        };
        let busy = TaskCount::new(&worker.tasks);
        worker.handle.spawn(async move {
            task().await;
            drop(busy);
        });
    }
}

/// Counts a task while the task exists.
struct TaskCount(Arc<AtomicUsize>);

impl TaskCount {
    fn new(tasks: &Arc<AtomicUsize>) -> Self {
        tasks.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(tasks))
    }
}

impl Drop for TaskCount {
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
