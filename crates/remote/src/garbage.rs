//! Measures a remote's size and removes old templates from it.
//!
//! A remote grows with each push, so users remove old templates from time to time. This
//! collection first removes old heads, then the blobs that no remaining head needs.
//!
//! A machine that pushes a template can reuse other templates' packs, and it writes the template's head last. A
//! collection therefore only removes a blob if:
//!
//! - No head needed the blob when the collection started.
//! - No head written since then needs it.
//! - The blob is older than a day.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt};

use crate::digest::BlobDigest;
use crate::document::{HeadDocument, LONGEST_HEAD};
use crate::error::RemoteError;
use crate::store::TemplateStore;
use crate::stored::StoredObject;
use crate::timeouts::{Timeouts, present, within};
use crate::tree::TreeDocument;

/// Minimum age at which an unneeded blob can be removed. No push takes longer than that.
const GRACE: Duration = Duration::from_hours(24);
/// Maximum number of trees to read in parallel.
const READERS: usize = 8;
/// Timeout for each listing and for each removal.
const LISTING: Duration = Duration::from_mins(10);

/// The content of a remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The number of templates.
    pub templates: usize,
    /// Total size in bytes, including blobs that no template needs.
    pub bytes: u64,
}

/// The result of [`crate::RemoteCache::collect`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// The fingerprints of the removed templates.
    pub templates: Vec<String>,
    /// The number of removed blobs. Always 0 for a registry, which removes its blobs itself.
    pub blobs: usize,
    /// Total size of the removed blobs, in bytes.
    pub bytes: u64,
}

/// Counts the templates and bytes in the store.
pub(crate) async fn usage(store: &TemplateStore, after: Duration) -> Result<Usage, RemoteError> {
    let listing = async { futures_util::try_join!(store.heads(), store.blobs()) };
    let (heads, blobs) = within(after, "list", "the remote", listing).await?;
    let bytes = |all: &[StoredObject]| all.iter().map(|object| object.bytes).sum::<u64>();
    Ok(Usage { templates: heads.len(), bytes: bytes(&heads) + bytes(&blobs) })
}

/// Removes the templates pushed earlier than `before`, as well as the blobs that no remaining template needs.
pub(crate) async fn collect(store: &TemplateStore, before: SystemTime) -> Result<Collected, RemoteError> {
    let list = async |what: &str| match what {
        "heads" => within(LISTING, "list", "the heads", store.heads()).await,
        "notices" => within(LISTING, "list", "the notices", store.notices()).await,
        _ => within(LISTING, "list", "the blobs", store.blobs()).await,
    };
    // List the blobs before the heads, so that the list can't contain blobs of a push that starts later.
    let blobs = if store.keeps_garbage() { list("blobs").await? } else { Vec::new() };
    let heads = list("heads").await?;
    let mut needed = if store.keeps_garbage() { needed(store, &heads).await? } else { HashSet::new() };
    let mut collected = Collected::default();
    for head in heads.iter().filter(|head| head.time < before) {
        let object = format!("the head of template {}", head.name);
        within(LISTING, "remove", &object, store.remove_head(&head.name)).await?;
        collected.templates.push(head.name.clone());
    }
    if !store.keeps_garbage() {
        return Ok(collected);
    }
    let known: BTreeMap<_, _> = heads.iter().map(|head| (&head.name, head.time)).collect();
    let mut later = list("heads").await?;
    later.retain(|head| known.get(&head.name) != Some(&head.time));
    needed.extend(self::needed(store, &later).await?);
    let kept: HashSet<_> = needed.iter().map(BlobDigest::to_string).collect();
    let old = SystemTime::now() - GRACE;
    for notice in list("notices").await?.iter().filter(|notice| notice.time < old) {
        let object = format!("the notice of template {}", notice.name);
        within(LISTING, "remove", &object, store.remove_notice(&notice.name)).await?;
    }
    for blob in blobs.iter().filter(|blob| blob.time < old && !kept.contains(&blob.name)) {
        let object = format!("blob {}", blob.name);
        within(LISTING, "remove", &object, store.remove_blob(&blob.name)).await?;
        collected.blobs += 1;
        collected.bytes += blob.bytes;
    }
    Ok(collected)
}

/// Returns the blobs that `heads` need. Signatures aren't checked, so untrusted heads' blobs remain in the store.
///
/// # Errors
/// Returns an error if a head or its tree can't be read. In that case, the caller must not remove any blobs.
async fn needed(store: &TemplateStore, heads: &[StoredObject]) -> Result<HashSet<BlobDigest>, RemoteError> {
    let read = heads.iter().map(|head| needed_by(store, &head.name));
    futures_util::stream::iter(read).buffer_unordered(READERS).try_concat().await
}

async fn needed_by(store: &TemplateStore, fingerprint: &str) -> Result<HashSet<BlobDigest>, RemoteError> {
    let object = format!("the head of template {fingerprint}");
    let answer = Timeouts::ASKED_FOR.answer;
    let text = within(answer, "read", &object, present(store.head(fingerprint, LONGEST_HEAD))).await?;
    // Another process removed the head.
    let Some(text) = text else { return Ok(HashSet::new()) };
    let damaged = |what: &str| RemoteError::Damaged { object: object.clone(), what: what.to_owned() };
    // A text that isn't a head doesn't need any blobs. Returning an error instead would block all later collections.
    let Ok(document) = HeadDocument::parse(&String::from_utf8_lossy(&text)) else {
        return Ok(HashSet::new());
    };
    let tree_object = format!("the tree of template {fingerprint}");
    let tree = within(answer, "read", &tree_object, present(store.whole_blob(&document.tree))).await?;
    // A template without its tree can't be fetched, so it doesn't need any blobs.
    let Some(tree) = tree else { return Ok(HashSet::new()) };
    let packs = TreeDocument::parse(&tree).map_err(damaged)?.tree.packs;
    Ok(packs.iter().chain([&document.tree]).map(|blob| blob.digest).collect())
}
