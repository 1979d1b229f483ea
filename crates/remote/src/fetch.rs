//! Downloads a template from a remote.
//!
//! A download reads the head first, then the tree, then the frames over several connections. A frame is a compressed
//! piece of a file. Each frame is verified as soon as it arrives, so damaged data never reaches the cache.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use storage::{EntryDownload, SignedHead, SignedManifest, TrustError, TrustedHead, TrustedKey};
use sys::lock;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::digest::Blob;
use crate::document::{HeadDocument, LONGEST_HEAD};
use crate::error::{RemoteError, StoreError};
use crate::store::TemplateStore;
use crate::timeouts::{Pace, TICK, Timeouts, TransferBounds, present, within};
use crate::tree::{FrameTree, LARGEST_FRAME, PackedFrame, TreeDocument};

/// Maximum number of parallel connections.
const CONNECTIONS: usize = 8;
/// Maximum size of one range request, in bytes.
const RANGE: u64 = 4 << 20;
/// Maximum number of unneeded bytes between two frames of one request. A larger gap starts a new request.
const GAP: u64 = 64 << 10;
/// Maximum number of consecutive attempts without progress before a range's download fails.
const ATTEMPTS: u32 = 3;
/// Minimum number of bytes that an attempt must receive to count as progress.
const PROGRESS: u64 = 4 << 10;
/// Delay before the first retry. Each consecutive failure increases the delay by the same amount.
const PAUSE: Duration = Duration::from_millis(50);

/// A template offered by a remote. The manifest is signed. The tree isn't, because it only determines where the bytes
/// are.
#[derive(Debug)]
pub(crate) struct FoundTemplate {
    pub(crate) announced: SignedManifest,
    pub(crate) tree: FrameTree,
    /// Time of the template's signature, in seconds since 1970.
    pub(crate) signed: u64,
}

/// Looks up the template `fingerprint`. Returns `None` if the remote lacks it.
///
/// # Errors
/// Returns an error if the template is untrusted or damaged, or if the remote fails.
pub(crate) async fn find(
    store: &TemplateStore,
    fingerprint: &str,
    keys: &[TrustedKey],
    timeouts: Timeouts,
) -> Result<Option<FoundTemplate>, RemoteError> {
    let begun = Instant::now();
    let object = format!("the head of template {fingerprint}");
    let head = present(store.head(fingerprint, LONGEST_HEAD));
    let Some(head) = within(timeouts.answer, "read", &object, head).await? else { return Ok(None) };
    let untrusted = |why: String| RemoteError::Untrusted { fingerprint: fingerprint.to_owned(), why };
    let distrusted = |error: TrustError| untrusted(error.to_string());
    let text = std::str::from_utf8(&head).map_err(|_| untrusted("its head is not UTF-8".to_owned()))?;
    let document = HeadDocument::parse(text).map_err(|why| untrusted(why.to_owned()))?;
    let signed = SignedHead { text: &document.head, signature: &document.signature };
    let head = TrustedHead::verify(fingerprint, signed, keys).map_err(distrusted)?;
    let object = format!("the tree of template {fingerprint}");
    let left = timeouts.answer.saturating_sub(begun.elapsed());
    let bytes = within(left, "read", &object, store.whole_blob(&document.tree)).await?;
    let damaged = |what: &str| RemoteError::Damaged { object: object.clone(), what: what.to_owned() };
    let TreeDocument { tree, manifest, about } = TreeDocument::parse(&bytes).map_err(damaged)?;
    let signed = head.signed().time;
    let announced = head.into_manifest(&manifest, about).map_err(distrusted)?;
    let files = announced.files();
    if !tree.makes(files.iter().map(|file| file.size)) {
        return Err(damaged("it does not produce the signed files"));
    }
    Ok(Some(FoundTemplate { announced, tree, signed }))
}

/// A run of neighboring frames in one pack, sorted by offset and requested together.
#[derive(Debug)]
struct FrameRun {
    pack: Blob,
    /// Frames that haven't arrived yet, as tree indexes.
    frames: VecDeque<usize>,
    /// Position in the pack of [`Self::buffer`]'s first byte.
    at: u64,
    /// The part of an incomplete frame received so far. After a broken connection, the next attempt resumes at its end.
    buffer: Vec<u8>,
}

/// Position of a frame's bytes in a file.
#[derive(Debug, Clone, Copy)]
struct FilePart {
    file: usize,
    offset: u64,
}

/// State shared by all threads of a download.
struct Download<'a> {
    store: &'a TemplateStore,
    tree: &'a FrameTree,
    receiving: &'a EntryDownload<'a>,
    /// For each frame, its positions in the files.
    parts: Vec<Vec<FilePart>>,
    /// For each file, how many of its parts haven't arrived yet.
    missing: Vec<AtomicUsize>,
    runs: Mutex<VecDeque<FrameRun>>,
    pace: Pace,
    timeouts: Timeouts,
    stop: watch::Sender<bool>,
}

/// Why a request ended early.
enum Interruption {
    /// A retry may succeed.
    Broken(StoreError),
    /// A retry would fail again.
    Final(RemoteError),
}

impl<E: Into<RemoteError>> From<E> for Interruption {
    fn from(error: E) -> Self {
        Self::Final(error.into())
    }
}

/// Downloads all files of a template.
///
/// `progress` receives the number of bytes received so far and the total.
pub(crate) fn download(
    runtime: &Handle,
    store: &TemplateStore,
    tree: &FrameTree,
    receiving: &EntryDownload<'_>,
    TransferBounds { timeouts, took }: TransferBounds,
    progress: &dyn Fn(u64, u64),
) -> Result<(), RemoteError> {
    let parts = parts(tree);
    let missing = tree.files.iter().map(|file| AtomicUsize::new(file.len())).collect();
    let runs = runs(tree, &parts);
    let total =
        runs.iter().flat_map(|run| &run.frames).map(|number| tree.frames[*number].length as u64).sum();
    let connections = runs.len().min(CONNECTIONS);
    let (runs, pace) = (Mutex::new(runs), Pace::new(total, connections));
    let stop = watch::Sender::new(false);
    let download = Download { store, tree, receiving, parts, missing, runs, pace, timeouts, stop };
    for (number, file) in tree.files.iter().enumerate() {
        if file.is_empty() {
            receiving.finish(number)?;
        }
    }
    thread::scope(|scope| {
        let (done, ends) = mpsc::channel();
        for _ in 0..connections {
            let (done, download) = (done.clone(), &download);
            scope.spawn(move || {
                let result = runtime.block_on(download.work());
                // The receiver outlives all threads, so `send` can't fail.
                done.send(result).unwrap_or_default();
            });
        }
        drop(done);
        let mut failure = None;
        loop {
            match ends.recv_timeout(TICK) {
                Ok(Err(error)) => failure = failure.or(Some(error)),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Ok(Ok(())) | Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if failure.is_none() && timeouts.projects {
                failure = download.pace.expect_gain(took).err();
            }
            if failure.is_some() {
                download.stop.send_replace(true);
            }
            progress(download.pace.done(), download.pace.total());
        }
        failure.map_or(Ok(()), Err)
    })
}

/// Returns the positions in the files for each frame.
fn parts(tree: &FrameTree) -> Vec<Vec<FilePart>> {
    let mut parts = vec![Vec::new(); tree.frames.len()];
    for (file, numbers) in tree.files.iter().enumerate() {
        let mut offset = 0;
        for number in numbers {
            parts[*number].push(FilePart { file, offset });
            offset += tree.frames[*number].raw as u64;
        }
    }
    parts
}

/// Groups the needed frames into runs, leaving out frames that no file uses.
fn runs(tree: &FrameTree, parts: &[Vec<FilePart>]) -> VecDeque<FrameRun> {
    let mut wanted: Vec<_> = (0..tree.frames.len()).filter(|number| !parts[*number].is_empty()).collect();
    wanted.sort_by_key(|number| (tree.frames[*number].pack, tree.frames[*number].offset));
    let mut runs: VecDeque<FrameRun> = VecDeque::new();
    let (mut begin, mut end, mut pack) = (0, 0, usize::MAX);
    for number in wanted {
        let frame = &tree.frames[number];
        let after = frame.offset + frame.length as u64;
        let near =
            frame.pack == pack && frame.offset >= end && frame.offset - end <= GAP && after - begin <= RANGE;
        match runs.back_mut() {
            Some(run) if near => run.frames.push_back(number),
            _ => {
                (begin, pack) = (frame.offset, frame.pack);
                let (pack, frames, at) = (tree.packs[frame.pack], [number].into(), frame.offset);
                runs.push_back(FrameRun { pack, frames, at, buffer: Vec::new() });
            }
        }
        end = after;
    }
    runs
}

impl Download<'_> {
    /// Downloads runs until none are left or another thread fails.
    async fn work(&self) -> Result<(), RemoteError> {
        let mut stopped = self.stop.subscribe();
        loop {
            let next = lock(&self.runs).pop_front();
            let Some(run) = next else { return Ok(()) };
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => return Ok(()),
                result = self.bring(run) => result?,
            }
        }
    }

    /// Downloads one run, resuming at the first missing byte after an error.
    async fn bring(&self, mut run: FrameRun) -> Result<(), RemoteError> {
        let mut failures = 0;
        loop {
            let before = run.at + run.buffer.len() as u64;
            match self.read(&mut run).await {
                Ok(()) => return Ok(()),
                Err(Interruption::Final(error)) => return Err(error),
                Err(Interruption::Broken(error)) => {
                    let come = (run.at + run.buffer.len() as u64).saturating_sub(before);
                    failures = if come >= PROGRESS { 1 } else { failures + 1 };
                    let retry = !matches!(error, StoreError::Absent | StoreError::Refused(_));
                    if failures >= ATTEMPTS || !retry {
                        return Err(error.attempt("read", format!("pack {}", run.pack.digest)));
                    }
                    tokio::time::sleep(PAUSE * failures).await;
                }
            }
        }
    }

    /// Reads the rest of a run with one request, removing each complete frame from the run.
    async fn read(&self, run: &mut FrameRun) -> Result<(), Interruption> {
        let frame = |number: &usize| &self.tree.frames[*number];
        let Some(last) = run.frames.back().map(frame) else { return Ok(()) };
        let rest = run.at + run.buffer.len() as u64..last.offset + last.length as u64;
        let mut stream = self.wait(run, |_| 0, self.store.blob(&run.pack.digest, rest)).await?;
        while let Some(number) = run.frames.front().copied() {
            let frame = frame(&number);
            let begin = usize::try_from(frame.offset - run.at).unwrap_or(usize::MAX);
            while run.buffer.len() < begin + frame.length {
                let bytes = |piece: &Option<Bytes>| piece.as_ref().map_or(0, Bytes::len);
                let piece = self.wait(run, bytes, async { stream.next().await.transpose() }).await?;
                let Some(piece) = piece else {
                    return Err(Interruption::Broken(StoreError::Broken(
                        "the connection was cut".to_owned(),
                    )));
                };
                run.buffer.extend_from_slice(&piece);
            }
            let taken = self.take(number, &run.buffer[begin..begin + frame.length]);
            if taken.is_err() {
                // The frame is damaged, so the next attempt must request all of it again.
                run.at = frame.offset;
                run.buffer.clear();
            }
            taken?;
            run.buffer.drain(..begin + frame.length);
            run.at = frame.offset + frame.length as u64;
            run.frames.pop_front();
        }
        Ok(())
    }

    /// Waits until `work` receives data. The number of bytes received, as counted by `bytes`, and the time spent
    /// waiting go to [`Self::pace`].
    ///
    /// A busy server may serve our connections one after another, so the wait only times out if no other connection
    /// received any data either.
    async fn wait<T>(
        &self,
        run: &FrameRun,
        bytes: impl Fn(&T) -> usize,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Interruption> {
        let begun = Instant::now();
        let after = self.timeouts.stall;
        tokio::pin!(work);
        let result = loop {
            let done = self.pace.done();
            match tokio::time::timeout(after, &mut work).await {
                Err(_) if self.pace.done() > done => {}
                result => break result,
            }
        };
        let bytes = result.as_ref().ok().and_then(|result| result.as_ref().ok()).map_or(0, bytes);
        self.pace.count(bytes, begun);
        let object = || format!("pack {}", run.pack.digest);
        let silent = |_| RemoteError::Silent { verb: "read", object: object(), after };
        result.map_err(silent)?.map_err(Interruption::Broken)
    }

    /// Verifies a frame and writes it to all its positions in the files.
    fn take(&self, number: usize, packed: &[u8]) -> Result<(), Interruption> {
        let frame = &self.tree.frames[number];
        let raw =
            unpack(frame, packed).map_err(|why| Interruption::Broken(StoreError::Broken(why.to_owned())))?;
        for part in &self.parts[number] {
            self.receiving.write(part.file, part.offset, &raw)?;
            if self.missing[part.file].fetch_sub(1, Ordering::AcqRel) == 1 {
                self.receiving.finish(part.file)?;
            }
        }
        Ok(())
    }
}

/// Decompresses a frame and verifies its digest. The output can't exceed the size that the frame's line in the tree
/// announces.
pub(crate) fn unpack(frame: &PackedFrame, packed: &[u8]) -> Result<Vec<u8>, &'static str> {
    let wrong = "its content differs from what was pushed";
    debug_assert!(frame.raw <= LARGEST_FRAME);
    let raw = zstd::bulk::decompress(packed, frame.raw).map_err(|_| wrong)?;
    let same = raw.len() == frame.raw && blake3::hash(&raw) == blake3::Hash::from(frame.digest);
    if same { Ok(raw) } else { Err(wrong) }
}
