//! What a remote holds, and removing what is old: heads first, then the blobs that no head needs.
//!
//! A pusher writes its head last, and it may share packs that were there before. So a blob goes only if no head has needed it
//! when we began, none that came meanwhile does, and it has been there for a day.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt};

use crate::digest::BlobDigest;
use crate::document::{HeadDocument, LONGEST_HEAD};
use crate::error::RemoteError;
use crate::patience::{Patience, present, within};
use crate::store::TemplateStore;
use crate::stored::StoredObject;
use crate::tree::TreeDocument;

/// How long a blob stays that no head needs: longer than any push takes.
const GRACE: Duration = Duration::from_hours(24);
/// Trees that are read at once.
const READERS: usize = 8;
/// How long a listing may take.
const LISTING: Duration = Duration::from_mins(10);

/// What a remote holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Templates.
    pub templates: usize,
    /// Bytes, of what no template needs any more, too.
    pub bytes: u64,
}

/// What was removed from a remote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// The fingerprints of the templates.
    pub templates: Vec<String>,
    /// How many blobs. A registry removes them itself.
    pub blobs: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Counts what is there.
pub(crate) async fn usage(store: &TemplateStore, after: Duration) -> Result<Usage, RemoteError> {
    let listing = async { futures_util::try_join!(store.heads(), store.blobs()) };
    let (heads, blobs) = within(after, ("list", "the remote"), listing).await?;
    let bytes = |all: &[StoredObject]| all.iter().map(|object| object.bytes).sum::<u64>();
    Ok(Usage { templates: heads.len(), bytes: bytes(&heads) + bytes(&blobs) })
}

/// Removes the templates that were pushed before `before`, and what no other needs.
pub(crate) async fn collect(store: &TemplateStore, before: SystemTime) -> Result<Collected, RemoteError> {
    let list = async |what: &str| match what {
        "heads" => within(LISTING, ("list", "the heads"), store.heads()).await,
        "notices" => within(LISTING, ("list", "the notices"), store.notices()).await,
        _ => within(LISTING, ("list", "the blobs"), store.blobs()).await,
    };
    // Blobs before heads: of what is pushed meanwhile, nothing is listed.
    let blobs = if store.keeps_garbage() { list("blobs").await? } else { Vec::new() };
    let heads = list("heads").await?;
    let mut needed = if store.keeps_garbage() { needed(store, &heads).await? } else { HashSet::new() };
    let mut collected = Collected::default();
    for head in heads.iter().filter(|head| head.time < before) {
        let object = format!("the head of template {}", head.name);
        within(LISTING, ("remove", &object), store.remove_head(&head.name)).await?;
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
        within(LISTING, ("remove", &object), store.remove_notice(&notice.name)).await?;
    }
    for blob in blobs.iter().filter(|blob| blob.time < old && !kept.contains(&blob.name)) {
        let object = format!("blob {}", blob.name);
        within(LISTING, ("remove", &object), store.remove_blob(&blob.name)).await?;
        collected.blobs += 1;
        collected.bytes += blob.bytes;
    }
    Ok(collected)
}

/// The blobs that heads need. Signatures do not matter: what is needed by anything stays.
///
/// # Errors
/// A head cannot be read, or the tree of one: nothing may be removed then.
async fn needed(store: &TemplateStore, heads: &[StoredObject]) -> Result<HashSet<BlobDigest>, RemoteError> {
    let read = heads.iter().map(|head| needed_by(store, &head.name));
    futures_util::stream::iter(read).buffer_unordered(READERS).try_concat().await
}

async fn needed_by(store: &TemplateStore, fingerprint: &str) -> Result<HashSet<BlobDigest>, RemoteError> {
    let object = format!("the head of template {fingerprint}");
    let answer = Patience::ASKED_FOR.answer;
    let text = within(answer, ("read", &object), present(store.head(fingerprint, LONGEST_HEAD))).await?;
    // Another process removed it.
    let Some(text) = text else { return Ok(HashSet::new()) };
    let damaged = |what: &str| RemoteError::Damaged { object: object.clone(), what: what.to_owned() };
    // Something that is no head at all is a template for no one, and would be in the way for ever.
    let Ok(document) = HeadDocument::parse(&String::from_utf8_lossy(&text)) else {
        return Ok(HashSet::new());
    };
    let tree_object = format!("the tree of template {fingerprint}");
    let tree = within(answer, ("read", &tree_object), present(store.whole_blob(&document.tree))).await?;
    // It cannot be fetched, and needs nothing.
    let Some(tree) = tree else { return Ok(HashSet::new()) };
    let packs = TreeDocument::parse(&tree).map_err(damaged)?.tree.packs;
    Ok(packs.iter().chain([&document.tree]).map(|blob| blob.digest).collect())
}
