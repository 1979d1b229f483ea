//! Reads the base image and the init scripts from a Dockerfile.

use std::path::PathBuf;

use super::yaml::Node;
use super::{SCRIPT_FOLDER, folder, is_script_target};
use crate::project::variables::Variables;

/// Parts of an image built from a Dockerfile.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) image: Option<String>,
    /// Paths on the host, each with its path in the image.
    pub(super) mounts: Vec<(PathBuf, String)>,
}

/// Reads the Dockerfile named by a service's `build` key.
pub(super) fn read(build: &Node, resolve: impl Fn(&str) -> PathBuf) -> Built {
    let key = |name: &str| build.get(name).and_then(Node::text);
    let Some(context) = build.text().or_else(|| key("context").or(Some("."))) else {
        return Built::default();
    };
    let context = resolve(context);
    let inline = key("dockerfile_inline").map(str::to_owned);
    let text = inline.or_else(|| folder::read(&context.join(key("dockerfile").unwrap_or("Dockerfile"))).ok());
    let mut arguments = Variables::default();
    for (name, value) in build.get("args").map(Node::pairs).unwrap_or_default() {
        arguments.add_default(&name, value.unwrap_or_default());
    }
    let mut result = Built::default();
    let mut stages: Vec<(String, Option<String>)> = Vec::new();
    for line in text.unwrap_or_default().replace("\\\n", " ").lines() {
        let mut words = line.split_whitespace();
        match words.next().map(str::to_ascii_uppercase).as_deref() {
            Some("ARG") => {
                if let Some((name, value)) = words.next().and_then(|word| word.split_once('=')) {
                    arguments.add_default(name, value.trim_matches(['"', '\'']).to_owned());
                }
            }
            Some("FROM") => {
                let image =
                    words.by_ref().find(|word| !word.starts_with("--")).map(|word| arguments.expand(word));
                let stage = image.as_ref().and_then(|image| stages.iter().find(|(name, _)| name == image));
                let image = stage.map_or(image.clone(), |(_, image)| image.clone());
                stages.push((words.nth(1).unwrap_or_default().to_owned(), image.clone()));
                result = Built { image, mounts: Vec::new() };
            }
            Some("COPY" | "ADD") => {
                let paths: Vec<_> = words.filter(|word| !word.starts_with("--")).collect();
                if let Some((target, sources)) =
                    paths.split_last().filter(|(target, _)| is_script_target(target))
                {
                    result
                        .mounts
                        .extend(sources.iter().map(|source| copied(context.join(source), source, target)));
                }
            }
            _ => {}
        }
    }
    result
}

/// Returns the path of a copied file or folder in the image. A file goes into the folder `target` if `target` ends
/// with a slash or is the script folder.
fn copied(path: PathBuf, source: &str, target: &str) -> (PathBuf, String) {
    let name = source.rsplit('/').next().unwrap_or_default();
    let into_folder = path.is_file() && (target.ends_with('/') || target.ends_with(SCRIPT_FOLDER));
    let target = target.trim_end_matches('/');
    let target = if into_folder { format!("{target}/{name}") } else { target.to_owned() };
    // Docker copies the contents of a folder, and the files that match a pattern.
    let path = if source.contains('*') { path.parent().map(PathBuf::from).unwrap_or_default() } else { path };
    (path, target)
}
