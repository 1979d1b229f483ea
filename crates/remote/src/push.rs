//! Uploads a template to a remote.
//!
//! A push uploads packs with the new frames, then the tree, and finally the head. A template is invisible to other
//! machines until its head exists. If the push is interrupted before that, a later collection removes the uploaded
//! blobs.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use storage::{Attempt, CacheError, Description, Entry, FileError};
use sys::lock;
use tokio::runtime::Handle;

use crate::digest::{Blob, BlobDigest};
use crate::document::HeadDocument;
use crate::error::{RemoteError, StoreError};
use crate::store::TemplateStore;
use crate::timeouts::{MARGIN, TICK, Timeouts, TransferBounds, within};
use crate::tree::{FrameTree, LARGEST_FRAME, LEVEL, PackedFrame, TreeDocument};

/// Target size of a pack, in bytes.
const PACK: usize = 32 << 20;
/// Target size of the first pack, in bytes. It is small because the first upload serves to measure the remote's speed.
const FIRST_PACK: usize = 512 << 10;
/// The number of packs to upload in parallel.
const SENDERS: u32 = 2;

/// The amount of data that a push sent, and the amount that the remote already had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// Number of bytes sent: 0 if the remote already had the template.
    pub bytes: u64,
    /// Total size in bytes of the frames this push skipped because the remote already had them.
    pub shared: u64,
}

/// A pack ready to be uploaded.
struct NewPack {
    bytes: Bytes,
    blob: Blob,
}

/// Splits files into frames and collects the new frames in packs.
struct Packer {
    tree: FrameTree,
    /// Maps each frame's digest to the frame's index in the tree.
    known: HashMap<[u8; 32], usize>,
    /// Maps each frame's digest in the related trees to the frame and its pack. These frames are already in the remote.
    /// If a file uses one, the frame's pack is added to this tree.
    related: HashMap<[u8; 32], (Blob, PackedFrame)>,
    /// Maps the digest of each pack shared with a related tree to the pack's index in this tree.
    borrowed: HashMap<BlobDigest, usize>,
    pack: Vec<u8>,
    /// The current pack's frames, as tree indexes.
    pending: Vec<usize>,
    shared: u64,
    sink: SyncSender<NewPack>,
}

/// Result of a [`Packer`] step. `Err(None)` means that an upload failed, so no thread receives any more packs.
type Packed<T> = Result<T, Option<CacheError>>;

impl Packer {
    fn new(related: &[FrameTree], sink: SyncSender<NewPack>) -> Self {
        let mut frames = HashMap::new();
        for tree in related {
            for frame in &tree.frames {
                frames.entry(frame.digest).or_insert((tree.packs[frame.pack], *frame));
            }
        }
        Self {
            tree: FrameTree::default(),
            known: HashMap::new(),
            related: frames,
            borrowed: HashMap::new(),
            pack: Vec::new(),
            pending: Vec::new(),
            shared: 0,
            sink,
        }
    }

    /// Adds all files of an entry, verifying them against the entry's manifest.
    fn add_entry(&mut self, entry: &Entry, packed: &dyn Fn(u64)) -> Packed<()> {
        for file in entry.contents() {
            let path = entry.data().join(&file.path);
            let failed = |error: FileError| Some(CacheError::from(error));
            let mut source = File::open(&path).attempt("open", &path).map_err(failed)?;
            let (mut hasher, mut numbers) = (blake3::Hasher::new(), Vec::new());
            let mut buffer = Vec::with_capacity(LARGEST_FRAME);
            let mut size = 0;
            loop {
                buffer.clear();
                let mut frame = source.by_ref().take(LARGEST_FRAME as u64);
                let count = frame.read_to_end(&mut buffer).attempt("read", &path).map_err(failed)?;
                if count == 0 {
                    break;
                }
                hasher.update(&buffer);
                numbers.push(self.add(&buffer)?);
                size += count as u64;
                packed(count as u64);
            }
            if (size, *hasher.finalize().as_bytes()) != (file.size, file.digest) {
                return Err(Some(CacheError::Invalid { path, what: "it differs from its manifest" }));
            }
            self.tree.files.push(numbers);
        }
        self.close_pack()
    }

    /// Returns the index of the frame with these bytes, adding it if the tree lacks it.
    fn add(&mut self, raw: &[u8]) -> Packed<usize> {
        let digest = *blake3::hash(raw).as_bytes();
        if let Some(number) = self.known.get(&digest) {
            return Ok(*number);
        }
        let number = self.tree.frames.len();
        if let Some((blob, frame)) = self.related.get(&digest).filter(|(_, frame)| frame.raw == raw.len()) {
            let packs = &mut self.tree.packs;
            let pack = *self.borrowed.entry(blob.digest).or_insert_with(|| {
                packs.push(*blob);
                packs.len() - 1
            });
            self.shared += frame.length as u64;
            self.tree.frames.push(PackedFrame { pack, ..*frame });
        } else {
            let packed = zstd::bulk::compress(raw, LEVEL)
                .map_err(|_| CacheError::Invalid { path: "frame".into(), what: "it cannot be compressed" })?;
            let offset = self.pack.len() as u64;
            // A placeholder, since a pack's index is only known once the pack is complete.
            self.tree.frames.push(PackedFrame {
                pack: usize::MAX,
                offset,
                length: packed.len(),
                raw: raw.len(),
                digest,
            });
            self.pack.extend_from_slice(&packed);
            self.pending.push(number);
        }
        self.known.insert(digest, number);
        let first = self.tree.packs.len() == self.borrowed.len();
        if self.pack.len() >= if first { FIRST_PACK } else { PACK } {
            self.close_pack()?;
        }
        Ok(number)
    }

    fn close_pack(&mut self) -> Packed<()> {
        if self.pack.is_empty() {
            return Ok(());
        }
        let bytes = Bytes::from(std::mem::take(&mut self.pack));
        let blob = Blob { digest: BlobDigest::of(&bytes), bytes: bytes.len() as u64 };
        for number in self.pending.drain(..) {
            self.tree.frames[number].pack = self.tree.packs.len();
        }
        self.tree.packs.push(blob);
        self.sink.send(NewPack { bytes, blob }).map_err(|_| None)
    }
}

/// Measures the upload speed.
#[derive(Debug, Default)]
struct Rate {
    sent: u64,
    busy: Duration,
}

impl TransferBounds {
    /// Returns the timeout for uploading a blob of `bytes` bytes, based on the upload speed so far.
    fn of_blob(self, bytes: u64, rate: &Mutex<Rate>) -> Duration {
        let rate = lock(rate);
        let least = self.timeouts.answer.max(self.timeouts.stall);
        if rate.sent == 0 {
            return least;
        }
        #[allow(clippy::cast_precision_loss)]
        let expected = rate.busy.as_secs_f64() * bytes as f64 / rate.sent as f64;
        least + Duration::from_secs_f64(expected.min(3600.0) * f64::from(SENDERS))
    }
}

/// Uploads an entry's frames, except for those in the related trees. Returns the entry's tree and how many bytes were
/// sent and saved.
pub(crate) fn send_packs(
    runtime: &Handle,
    store: &TemplateStore,
    entry: &Entry,
    related: &[FrameTree],
    bounds: TransferBounds,
    progress: &dyn Fn(u64, u64),
) -> Result<(FrameTree, Pushed), RemoteError> {
    let (sink, packs) = sync_channel(1);
    let packs = Mutex::new(packs);
    let rate = Mutex::new(Rate::default());
    let begun = Instant::now();
    thread::scope(|scope| {
        let (report, reports) = mpsc::channel();
        let packer = scope.spawn(move || {
            let mut packer = Packer::new(related, sink);
            let result = packer.add_entry(entry, &|bytes| report.send(bytes).unwrap_or_default());
            (result, packer.tree, packer.shared)
        });
        let (packs, rate) = (&packs, &rate);
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| scope.spawn(move || runtime.block_on(send(store, packs, bounds, rate))))
            .collect();
        let (mut done, total) = (0, entry.bytes());
        loop {
            match reports.recv_timeout(TICK) {
                Ok(bytes) => done += bytes,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            progress(done, total);
        }
        // A failing sender closes the channel, which stops the packer.
        let sent: Vec<_> = senders.into_iter().map(join).collect();
        let (result, tree, shared) = join(packer);
        let sent = sent.into_iter().sum::<Result<u64, RemoteError>>()?;
        match result {
            Ok(()) => {}
            Err(Some(error)) => return Err(error.into()),
            Err(None) => return Err(late(begun, bounds)),
        }
        Ok((tree, Pushed { bytes: sent, shared }))
    })
}

fn late(begun: Instant, bounds: TransferBounds) -> RemoteError {
    RemoteError::Late { after: begun.elapsed().as_secs_f64(), took: bounds.took.as_secs_f64() }
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Uploads packs until the packer finishes. Returns the number of bytes sent. A failed upload also stops the packer.
async fn send(
    store: &TemplateStore,
    packs: &Mutex<Receiver<NewPack>>,
    bounds: TransferBounds,
    rate: &Mutex<Rate>,
) -> Result<u64, RemoteError> {
    let mut sent = 0;
    let begun = Instant::now();
    let result = loop {
        let next = lock(packs).recv();
        let Ok(pack) = next else { break Ok(sent) };
        if bounds.timeouts.projects && begun.elapsed() > bounds.took + MARGIN {
            break Err(late(begun, bounds));
        }
        match put(store, &pack.blob, pack.bytes, bounds, rate).await {
            Ok(bytes) => sent += bytes,
            Err(error) => break Err(error),
        }
    };
    if result.is_err() {
        // Dropping the receiver makes the packer's next `send` fail.
        let (_, closed) = sync_channel(0);
        *lock(packs) = closed;
    }
    result
}

/// Uploads one blob unless the store already has it, returning the number of bytes sent.
async fn put(
    store: &TemplateStore,
    blob: &Blob,
    bytes: Bytes,
    bounds: TransferBounds,
    rate: &Mutex<Rate>,
) -> Result<u64, RemoteError> {
    let object = format!("blob {}", blob.digest);
    if within(bounds.timeouts.answer, "look for", &object, store.has_blob(blob)).await? {
        return Ok(0);
    }
    let begun = Instant::now();
    let after = bounds.of_blob(blob.bytes, rate);
    within(after, "write", &object, again(|| store.put_blob(&blob.digest, bytes.clone()))).await?;
    let mut rate = lock(rate);
    rate.sent += blob.bytes;
    rate.busy += begun.elapsed();
    Ok(blob.bytes)
}

/// Runs `work`, retrying once if it fails with [`StoreError::Broken`].
async fn again<F: Future<Output = Result<(), StoreError>>>(work: impl Fn() -> F) -> Result<(), StoreError> {
    match work().await {
        Err(StoreError::Broken(_)) => work().await,
        other => other,
    }
}

/// The result of [`publish`].
pub(crate) struct Published {
    /// All of the template's blobs.
    pub(crate) blobs: Vec<Blob>,
    /// Number of bytes sent for the tree: 0 if the store already had it.
    pub(crate) tree: u64,
    /// Number of bytes sent for the head.
    pub(crate) head: u64,
}

/// Uploads the tree, then the head. If `replace` is true, overwrites an existing head.
///
/// # Errors
/// Returns an error if the remote fails, or if a registry has removed a blob that this template
/// shares with another. A template with a missing blob doesn't get a head, so it remains invisible.
pub(crate) async fn publish(
    store: &TemplateStore,
    fingerprint: &str,
    tree: FrameTree,
    description: Description,
    replace: bool,
    bounds: TransferBounds,
) -> Result<Published, RemoteError> {
    let Description { head, signature, manifest, about } = description;
    let mut blobs = tree.packs.clone();
    let object = format!("the tree of template {fingerprint}");
    let document = TreeDocument { tree, manifest, about };
    let bytes = document.to_bytes().map_err(|error| error.attempt("compress", &object))?;
    let tree = Blob { digest: BlobDigest::of(&bytes), bytes: bytes.len() as u64 };
    let rate = Mutex::new(Rate::default());
    let sent = put(store, &tree, Bytes::from(bytes), bounds, &rate).await?;
    blobs.insert(0, tree);
    let text = HeadDocument { tree, head, signature }.to_text();
    let object = format!("the head of template {fingerprint}");
    let write = async {
        match store.put_head(fingerprint, &text, &blobs, replace).await {
            // Another machine pushed the same template first. Its head is as good as ours.
            Err(StoreError::Exists) => Ok(()),
            other => other,
        }
    };
    within(bounds.timeouts.answer, "write", &object, write).await?;
    Ok(Published { blobs, tree: sent, head: text.len() as u64 })
}

/// Returns true if the store has all `blobs`.
pub(crate) async fn is_complete(
    store: &TemplateStore,
    blobs: &[Blob],
    timeouts: Timeouts,
) -> Result<bool, RemoteError> {
    for blob in blobs {
        let object = format!("blob {}", blob.digest);
        if !within(timeouts.answer, "look for", &object, store.has_blob(blob)).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
