//! Loads services from Compose files, resolving overrides, `extends`, `include` and variables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::image::Image;
use super::yaml::{self, Node};
use super::{dockerfile, folder, relative};
use crate::project::variables::Variables;

/// Maximum length of a chain of files or services that refer to each other.
const MAX_CHAIN: usize = 8;
/// Maximum number of files that a Compose file can refer to.
const MAX_FILES: usize = 200;

/// A service, with its paths resolved.
#[derive(Debug, Clone, Default)]
pub(super) struct Service {
    pub(super) name: String,
    image: Option<String>,
    /// The container's environment variables. If a name occurs more than once, the last value wins.
    environment: Vec<(String, String)>,
    pub(super) command: Vec<String>,
    /// Ports of the host that lead to the service.
    pub(super) ports: Vec<u16>,
    /// Paths on the host, each with its path in the container.
    pub(super) mounts: Vec<(PathBuf, String)>,
}

impl Service {
    /// Returns the image if it is a PostgreSQL image.
    pub(super) fn image(&self) -> Option<Image> {
        Image::of_postgres(self.image.as_deref()?)
    }

    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a variable that isn't empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.variable(name).filter(|text| !text.is_empty())
    }

    pub(super) fn user(&self) -> Option<&str> {
        self.text("POSTGRES_USER").or_else(|| self.text("POSTGRESQL_USERNAME"))
    }

    /// Returns the name of the image's database. By default, the image gives it the name of the user.
    pub(super) fn database(&self) -> Option<&str> {
        self.text("POSTGRES_DB").or_else(|| self.text("POSTGRESQL_DATABASE")).or_else(|| self.user())
    }

    /// Merges two services as Docker Compose does: keys in `over` take precedence.
    fn merged(mut self, over: Self) -> Self {
        self.environment.extend(over.environment);
        self.mounts.extend(over.mounts);
        self.ports.extend(over.ports);
        let command = if over.command.is_empty() { self.command } else { over.command };
        Self { name: over.name, image: over.image.or(self.image), command, ..self }
    }
}

/// Reads Compose files and collects problems for the user.
pub(super) struct Loader<'a> {
    project: &'a Path,
    variables: &'a Variables,
    /// Parsed Compose files by path. `None` marks an unreadable file. This cache lets many services extend services in
    /// the same file without reading it again.
    documents: BTreeMap<PathBuf, Option<Rc<Node>>>,
    /// Files whose services have been loaded. Files can include each other in a cycle, and can include a
    /// file many times.
    included: BTreeSet<PathBuf>,
    /// Number of files read so far.
    files: usize,
    pub(super) problems: Vec<String>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(project: &'a Path, variables: &'a Variables) -> Self {
        Self {
            project,
            variables,
            documents: BTreeMap::new(),
            included: BTreeSet::new(),
            files: 0,
            problems: Vec::new(),
        }
    }

    /// Returns the services in the file at `path` and in its override file.
    pub(super) fn load(&mut self, path: &Path) -> Vec<Service> {
        let mut services = self.services(path, 0);
        let stem = path.with_extension("override");
        for extension in ["yml", "yaml"] {
            let over = PathBuf::from(format!("{}.{extension}", stem.display()));
            if over.exists() {
                for service in self.services(&over, 0) {
                    merge_into(&mut services, service);
                }
            }
        }
        services
    }

    fn services(&mut self, path: &Path, chain: usize) -> Vec<Service> {
        let mut services = Vec::new();
        if chain >= MAX_CHAIN || !self.included.insert(path.to_owned()) {
            return services;
        }
        let Some(document) = self.document(path) else { return services };
        let folder = path.parent().unwrap_or(Path::new(""));
        for included in document.get("include").map(Node::items).unwrap_or_default() {
            let paths = included.get("path").unwrap_or(included);
            for included in paths.items().iter().filter_map(Node::text) {
                for service in self.services(&resolve(folder, included), chain + 1) {
                    merge_into(&mut services, service);
                }
            }
        }
        for (name, _) in services_of(&document).entries() {
            if let Some(service) = self.service(&document, path, name, chain) {
                merge_into(&mut services, service);
            }
        }
        services
    }

    fn document(&mut self, path: &Path) -> Option<Rc<Node>> {
        if let Some(known) = self.documents.get(path) {
            return known.clone();
        }
        let document = if self.may_read(path) { self.read(path) } else { None };
        self.documents.insert(path.to_owned(), document.clone());
        document
    }

    fn read(&mut self, path: &Path) -> Option<Rc<Node>> {
        let read = folder::read(path).map_err(|error| error.to_string()).and_then(|text| yaml::parse(&text));
        match read {
            Ok(document) => Some(Rc::new(document.map_texts(&|text| self.variables.expand(text)))),
            Err(why) => {
                self.report(path, &why);
                None
            }
        }
    }

    /// Counts a file. Returns false for each file after the first [`MAX_FILES`], and reports only the first of these.
    fn may_read(&mut self, path: &Path) -> bool {
        self.files += 1;
        if self.files == MAX_FILES + 1 {
            self.report(path, &format!("the services need more than {MAX_FILES} files"));
        }
        self.files <= MAX_FILES
    }

    fn report(&mut self, path: &Path, why: &str) {
        self.problems.push(format!("could not read \"{}\": {why}", relative(self.project, path)));
    }

    fn service(&mut self, document: &Node, path: &Path, name: &str, chain: usize) -> Option<Service> {
        let node = services_of(document).get(name)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let own = self.own_keys(document, node, folder, name);
        let Some(extends) = node.get("extends").filter(|_| chain < MAX_CHAIN) else { return Some(own) };
        let base = extends.get("service").unwrap_or(extends).text()?;
        let base = match extends.get("file").and_then(Node::text).map(|file| resolve(folder, file)) {
            Some(other) if other != path => {
                let document = self.document(&other)?;
                self.service(&document, &other, base, chain + 1)
            }
            _ => self.service(document, path, base, chain + 1),
        };
        Some(base.unwrap_or_default().merged(own))
    }

    fn own_keys(&mut self, document: &Node, node: &Node, folder: &Path, name: &str) -> Service {
        let mut service = Service { name: name.to_owned(), ..Service::default() };
        service.image = node.get("image").and_then(Node::text).map(str::to_owned);
        if let Some(build) = node.get("build")
            && self.may_read(folder)
        {
            let built = dockerfile::read(build, |path| resolve(folder, path));
            service.mounts.extend(built.mounts);
            // If a service has both an image and a build, the image is only a name for the build's result.
            service.image = built.image.or(service.image);
        }
        for file in node.get("env_file").map(Node::items).unwrap_or_default() {
            if let Some(file) = file.get("path").unwrap_or(file).text() {
                let path = resolve(folder, file);
                if self.may_read(&path) {
                    service.environment.extend(Variables::read(&path).into_pairs());
                }
            }
        }
        // If a variable has no value in the file, Docker Compose looks it up in its own environment.
        let inherited = |name: &str| self.variables.get(name).unwrap_or_default().to_owned();
        for (name, value) in node.get("environment").map(Node::pairs).unwrap_or_default() {
            let value = value.unwrap_or_else(|| inherited(&name));
            service.environment.push((name, value));
        }
        service.command = words(node.get("command"));
        service.ports =
            node.get("ports").map(Node::items).unwrap_or_default().iter().filter_map(port).collect();
        for volume in node.get("volumes").map(Node::items).unwrap_or_default() {
            service.mounts.extend(mount(volume).map(|(source, target)| (resolve(folder, &source), target)));
        }
        for config in node.get("configs").map(Node::items).unwrap_or_default() {
            let (Some(source), Some(target)) =
                (config.get("source").and_then(Node::text), config.get("target").and_then(Node::text))
            else {
                continue;
            };
            let file = document.get("configs").and_then(|all| all.get(source)?.get("file")?.text());
            service.mounts.extend(file.map(|file| (resolve(folder, file), target.to_owned())));
        }
        service
    }
}

/// Returns the node with the services. In version 1 of the format, this is the whole document.
fn services_of(document: &Node) -> &Node {
    document.get("services").unwrap_or(document)
}

fn merge_into(services: &mut Vec<Service>, service: Service) {
    match services.iter_mut().find(|known| known.name == service.name) {
        Some(known) => *known = std::mem::take(known).merged(service),
        None => services.push(service),
    }
}

/// Reads a command, which is either a list of words or a single text.
fn words(node: Option<&Node>) -> Vec<String> {
    match node {
        Some(Node::Text(text)) => shlex::split(text).unwrap_or_default(),
        Some(list) => list.items().iter().filter_map(Node::text).map(str::to_owned).collect(),
        None => Vec::new(),
    }
}

/// Reads the host's port of a published port in short or long form, such as `127.0.0.1:5433:5432`.
fn port(node: &Node) -> Option<u16> {
    let port = match node.text() {
        Some(text) => text.rsplit(':').nth(1)?,
        None => node.get("published")?.text()?,
    };
    port.parse().ok()
}

/// Reads a volume in short or long form. Returns `None` for a named volume, which has no path on the host.
fn mount(node: &Node) -> Option<(String, String)> {
    let (source, target) = if let Some(text) = node.text() {
        let mut parts = text.split(':');
        (parts.next()?.to_owned(), parts.next()?.to_owned())
    } else {
        (node.get("source")?.text()?.to_owned(), node.get("target")?.text()?.to_owned())
    };
    let is_path = source.starts_with(['.', '/', '~']) || node.get("source").is_some() && source.contains('/');
    is_path.then_some((source, target))
}

/// Resolves a path, including any `..` in it, relative to `folder`.
fn resolve(folder: &Path, path: &str) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved
}
