//! Tests that imports reject signed entries that were modified after their export.

use std::os::unix::fs::{FileExt, PermissionsExt};

use super::*;

/// A signed entry in transit between two caches.
struct SignedExport {
    directory: tempfile::TempDir,
    key: SigningKey,
    tree: PathBuf,
    folder: PathBuf,
}

impl SignedExport {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (tree, folder) = exported_fixture(directory.path());
        let key = SigningKey::generate().unwrap();
        sign(&folder, &key, &AtomicBool::new(false)).unwrap();
        Self { directory, key, tree, folder }
    }

    fn trusted(&self) -> [TrustedKey; 1] {
        [self.key.public()]
    }

    /// Imports the entry into a new cache with the given trusted keys, then checks that the cache contains
    /// either the whole entry or nothing.
    fn import_into_new_cache(&self, trusted: &[TrustedKey]) -> Result<(), CacheError> {
        let root = tempfile::tempdir_in(self.directory.path()).unwrap();
        let there = Cache::locate(Some(root.path())).unwrap();
        let result = there.import(&self.folder, trusted, &AtomicBool::new(false));
        let entry = there.look_up("abc").unwrap();
        match &result {
            Ok(new) => {
                let entry = entry.unwrap();
                assert!(*new && entry.about() == "about");
                assert_eq!(contents_below(&entry.data()), contents_below(&self.tree));
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("abc") && !text.contains('\n'), "{text}");
                assert!(
                    entry.is_none() && fs::read_dir(root.path().join("images")).unwrap().next().is_none()
                );
            }
        }
        result.map(drop)
    }

    fn expect_refusal(&self, text: &str) {
        let trusted = self.trusted();
        let error = self.import_into_new_cache(&trusted).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        let error = verify(&self.folder, &trusted, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }

    /// Changes a file and its line in the manifest, but leaves the signature unchanged.
    fn forge(&self) {
        fs::write(self.folder.join("data/top"), "archive_command = 'anything'").unwrap();
        let path = self.folder.join("manifest");
        let mut said = Manifest::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        let file = said.files.iter_mut().find(|file| file.path == "top").unwrap();
        let bytes = fs::read(self.folder.join("data/top")).unwrap();
        (file.size, file.digest) = (bytes.len() as u64, blake3::hash(&bytes));
        fs::write(path, said.to_text()).unwrap();
    }

    /// Returns the path of every file and directory in the entry.
    fn paths(&self) -> Vec<PathBuf> {
        contents_below(&self.folder).into_iter().map(|(path, _)| self.folder.join(path)).collect()
    }
}

#[test]
fn trusted_keys_make_import_refuse_forged_entry() {
    let journey = SignedExport::new();
    journey.import_into_new_cache(&journey.trusted()).unwrap();
    journey.forge();
    journey.expect_refusal("manifest\": it is not the one that was signed");
    // Without trusted keys, the manifest only has to be consistent with the files.
    let there = Cache::locate(Some(&journey.directory.path().join("there"))).unwrap();
    assert!(there.import(&journey.folder, &[], &AtomicBool::new(false)).unwrap());
}

#[test]
fn unsigned_or_foreign_signed_entry_is_refused() {
    let journey = SignedExport::new();
    for name in ["head", "head.minisig"] {
        let text = fs::read(journey.folder.join(name)).unwrap();
        fs::remove_file(journey.folder.join(name)).unwrap();
        journey.expect_refusal("cannot trust \"");
        journey.expect_refusal("it is not signed");
        fs::write(journey.folder.join(name), text).unwrap();
    }
    let other = SigningKey::generate().unwrap();
    sign(&journey.folder, &other, &AtomicBool::new(false)).unwrap();
    journey.expect_refusal("which is not trusted");
    // A different key with the same id still isn't trusted.
    let mut text = other.public().to_string();
    text.replace_range(3..13, &journey.key.public().to_string()[3..13]);
    if let Ok(alike) = text.parse() {
        assert!(journey.import_into_new_cache(&[alike]).is_err());
    }
}

#[test]
fn keys_rotate() {
    let journey = SignedExport::new();
    let (old, new) = (journey.key.public(), SigningKey::generate().unwrap());
    let both = [new.public(), old.clone()];
    journey.import_into_new_cache(&both).unwrap();
    sign(&journey.folder, &new, &AtomicBool::new(false)).unwrap();
    journey.import_into_new_cache(&both).unwrap();
    journey.import_into_new_cache(&[new.public()]).unwrap();
    assert!(journey.import_into_new_cache(&[old]).is_err());
    let signed = verify(&journey.folder, &both, &AtomicBool::new(false)).unwrap();
    assert!(format!("{new:?}").contains(&signed.key) && signed.time > 1_700_000_000);
}

#[test]
fn signature_is_invalid_for_another_template() {
    let journey = SignedExport::new();
    // An attacker could serve an old signed entry under a newer fingerprint.
    let renamed = journey.folder.with_file_name("def");
    fs::rename(&journey.folder, &renamed).unwrap();
    let error = verify(&renamed, &journey.trusted(), &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.ends_with("def\": its signature belongs to template abc"), "{error}");
    let there = Cache::locate(Some(&journey.directory.path().join("there"))).unwrap();
    assert!(there.import(&renamed, &journey.trusted(), &AtomicBool::new(false)).is_err());
    assert!(there.look_up("def").unwrap().is_none());
}

#[test]
fn import_does_not_read_overlong_files() {
    for (name, size) in
        [("head", 5 << 10), ("head.minisig", 1 << 40), ("manifest", 1 << 40), ("about", 1 << 40)]
    {
        let journey = SignedExport::new();
        let file = fs::File::options().write(true).open(journey.folder.join(name)).unwrap();
        file.set_len(size).unwrap();
        journey.expect_refusal("it is too long");
    }
    let journey = SignedExport::new();
    let file = fs::File::options().write(true).open(journey.folder.join("data/base/1/rows")).unwrap();
    file.set_len(1 << 40).unwrap();
    journey.expect_refusal("it differs from its manifest");
}

#[test]
fn import_refuses_odd_modes_and_normalises_others() {
    let journey = SignedExport::new();
    let set = |mode| {
        let path = journey.folder.join("data/top");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o700, 0o610, 0o601, 0o4600, 0o2600, 0o1600, 0o4755] {
        set(mode);
        journey.expect_refusal("its mode is not that of a data file");
    }
    // A transport tool can leave files with any of these modes.
    for mode in [0o600, 0o640, 0o644, 0o666] {
        set(mode);
        let there = Cache::locate(Some(&journey.directory.path().join(format!("there-{mode}")))).unwrap();
        assert!(there.import(&journey.folder, &journey.trusted(), &AtomicBool::new(false)).unwrap());
        let meta = there.look_up("abc").unwrap().unwrap().data().join("top").metadata().unwrap();
        assert_eq!(meta.permissions().mode() & 0o7777, 0o600);
    }
}

#[test]
fn signing_refuses_data_that_differs_from_manifest() {
    let journey = SignedExport::new();
    fs::write(journey.folder.join("data/top"), "x").unwrap();
    assert!(sign(&journey.folder, &journey.key, &AtomicBool::new(false)).is_err());
    // If the signature file is a link, signing replaces the link instead of following it.
    let journey = SignedExport::new();
    let outside = journey.directory.path().join("outside");
    fs::write(&outside, "precious").unwrap();
    fs::remove_file(journey.folder.join("head")).unwrap();
    symlink(&outside, journey.folder.join("head")).unwrap();
    journey.expect_refusal("it is not a regular file");
    sign(&journey.folder, &journey.key, &AtomicBool::new(false)).unwrap();
    assert_eq!(fs::read_to_string(outside).unwrap(), "precious");
    journey.import_into_new_cache(&journey.trusted()).unwrap();
}

#[test]
fn entry_missing_any_file_or_folder_is_refused() {
    let count = SignedExport::new().paths().len();
    assert_eq!(count, FILES.len() + FOLDERS.len() + 5);
    for at in 0..count {
        let journey = SignedExport::new();
        let path = &journey.paths()[at];
        remove(path);
        let error = journey.import_into_new_cache(&journey.trusted());
        assert!(error.is_err(), "without {}", path.display());
    }
}

#[test]
fn every_byte_of_a_signature_counts() {
    let journey = SignedExport::new();
    for name in ["head", "head.minisig"] {
        let path = journey.folder.join(name);
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            let result = verify(&journey.folder, &journey.trusted(), &AtomicBool::new(false));
            assert!(result.is_err(), "byte {at} of {name}");
        }
        for changed in [[&bytes[..], b"\n"].concat(), bytes[..bytes.len() - 1].to_vec()] {
            fs::write(&path, changed).unwrap();
            assert!(verify(&journey.folder, &journey.trusted(), &AtomicBool::new(false)).is_err());
        }
        fs::write(&path, bytes).unwrap();
    }
    journey.import_into_new_cache(&journey.trusted()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn entry_with_any_changed_bit_is_refused(file in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let journey = SignedExport::new();
        let mut files = journey.paths();
        files.retain(|path| path.is_file() && path.metadata().unwrap().len() > 0);
        let path = &files[file.index(files.len())];
        let file = fs::File::options().read(true).write(true).open(path).unwrap();
        let at = at.index(usize::try_from(file.metadata().unwrap().len()).unwrap()) as u64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
        prop_assert!(journey.import_into_new_cache(&journey.trusted()).is_err(), "byte {} of {}", at, path.display());
        prop_assert!(verify(&journey.folder, &journey.trusted(), &AtomicBool::new(false)).is_err());
    }

    #[test]
    fn damaged_signed_import_is_refused_or_exact(mishaps in prop::collection::vec(damages(), 0..3)) {
        let journey = SignedExport::new();
        for mishap in &mishaps {
            apply_damage(mishap, &journey.folder);
        }
        if let Err(error) = journey.import_into_new_cache(&journey.trusted()) {
            prop_assert!(!mishaps.is_empty(), "{}", error);
        }
    }
}
