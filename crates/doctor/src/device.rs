//! Identifies the disks below a path and determines what happens to their cached data in a power failure.

use report::{Cell, Layer, Quantity, Unit, as_f64};
use sys::{Bottom, Disk, Roots, Stack};

/// Name prefixes of virtual devices, with the software that provides them. Source: Linux,
/// Documentation/admin-guide/devices.txt.
const VIRTUAL_NAMES: [(&str, &str); 8] = [
    ("vd", "virtio"),
    ("xvd", "Xen"),
    ("nbd", "over the network, nbd"),
    ("rbd", "Ceph"),
    ("drbd", "replicated, drbd"),
    ("zram", "in memory, zram"),
    ("ram", "in memory"),
    ("loop", "over a file"),
];

/// Parts of virtual disks' and cloud volumes' model names, with the names of their providers.
const VIRTUAL_MODELS: [(&str, &str); 15] = [
    ("QEMU", "QEMU"),
    ("VBOX", "VirtualBox"),
    ("VMware", "VMware"),
    ("Amazon Elastic Block Store", "a network volume of AWS"),
    ("Amazon EC2 NVMe Instance Storage", "an instance's own disk at AWS"),
    ("PersistentDisk", "a network volume of Google Cloud"),
    ("nvme_card-pd", "a network volume of Google Cloud"),
    ("nvme_card", "an instance's own disk at Google Cloud"),
    ("EphemeralDisk", "an instance's own disk at Google Cloud"),
    ("MSFT", "Azure"),
    ("Msft", "Hyper-V or Azure"),
    ("DO Volume", "a network volume of DigitalOcean"),
    ("HC Volume", "a network volume of Hetzner"),
    ("BlockVolume", "a network volume of Oracle Cloud"),
    ("Virtual", "unnamed host"),
];

/// Name prefixes of models with power-loss protection, according to their manufacturers. Other models may also have
/// it. Source: data sheets of Micron, Intel, Samsung, Kioxia and Solidigm.
const PROTECTED_MODELS: [&str; 16] = [
    "Micron_7300",
    "Micron_7400",
    "Micron_7450",
    "Micron_7500",
    "Micron_9300",
    "Micron_9400",
    "INTEL SSDPE2",
    "INTEL SSDPF2",
    "SAMSUNG MZQL",
    "SAMSUNG MZWL",
    "SAMSUNG MZ1L",
    "SAMSUNG MZPL",
    "KIOXIA KCD",
    "KIOXIA KCM",
    "SOLIDIGM SB5",
    "INTEL SSDSC2K",
];

/// The storage below a path.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) stack: Stack,
    /// Limit on writes per second in this process's control group. `None` if there is no limit.
    pub(crate) cap: Option<u64>,
}

/// Durability of a flushed write, as far as the device reveals it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlushDurability {
    /// The data is in this machine's memory, so it is lost when the machine stops.
    Memory,
    /// A host, a cloud or a server determines the durability. The string contains the name of that host,
    /// cloud or server.
    HostDecides(String),
    /// The cache is volatile, but an administrator configured the kernel not to flush it.
    FlushesDisabled,
    /// The drive has power-loss protection, according to its manufacturer.
    Protected,
    /// The drive reports that it doesn't have a volatile cache.
    WriteThrough,
    /// The drive has a volatile cache. Each flush empties this cache.
    Volatile,
    /// The durability is unknown for this reason.
    Unknown(String),
}

impl Device {
    pub(crate) fn new(stack: Stack, roots: &Roots) -> Self {
        let cap = match &stack.bottom {
            Bottom::Disks(disks) => disks.iter().filter_map(|disk| disk.write_cap(roots)).min(),
            _ => None,
        };
        Self { stack, cap }
    }

    pub(crate) fn disks(&self) -> &[Disk] {
        match &self.stack.bottom {
            Bottom::Disks(disks) => disks,
            _ => &[],
        }
    }

    /// Returns true if a disk reports that it rotates. A rotating disk can't flush in less than 2 ms.
    pub(crate) fn reports_rotation(&self) -> bool {
        self.disks().iter().any(|disk| disk.rotational == Some(true))
    }

    pub(crate) fn flush_durability(&self) -> FlushDurability {
        match &self.stack.bottom {
            Bottom::Memory => FlushDurability::Memory,
            Bottom::Network(what) => FlushDurability::HostDecides(what.clone()),
            Bottom::Unknown(why) => FlushDurability::Unknown(why.clone()),
            // The least reliable disk determines the result.
            Bottom::Disks(disks) => {
                disks.iter().map(durability_of).max_by_key(uncertainty).unwrap_or(FlushDurability::Volatile)
            }
        }
    }

    /// Returns the disks' names, in a form that can start a sentence.
    fn subject(&self) -> String {
        let names = self.disks().iter().map(|disk| match &disk.model {
            Some(model) => format!("{} ({model})", disk.name),
            None => disk.name.clone(),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn layer(&self) -> Layer {
        let subject = self.subject();
        let verdict = match self.flush_durability() {
            FlushDurability::Memory => {
                "memory, no disk: nothing here waits for a flush, and nothing survives a power cut".to_owned()
            }
            FlushDurability::HostDecides(what) if self.disks().is_empty() => {
                format!("{what}: virtual or unproven, because the other side decides what a flush does")
            }
            FlushDurability::HostDecides(what) => {
                format!(
                    "{subject} is virtual ({what}): virtual or unproven, because its host decides what a flush does"
                )
            }
            FlushDurability::FlushesDisabled => format!(
                "{subject} has a volatile write cache, but the kernel is set to \"write through\" and sends no \
                flush: it lies"
            ),
            FlushDurability::Protected => {
                format!(
                    "{subject} belongs to a series with power-loss protection, according to its maker: a flush costs \
                    little"
                )
            }
            FlushDurability::WriteThrough => {
                format!("{subject} reports that it has no volatile write cache: no flush is needed")
            }
            FlushDurability::Volatile => {
                format!("{subject} has a volatile write cache, which every flush must empty")
            }
            FlushDurability::Unknown(why) => format!("unknown: {why}"),
        };
        let mut layer = Layer::new("Device", verdict + ".");
        if !self.stack.layers.is_empty() {
            layer.add_fact("through", self.stack.layers.join(", "));
        }
        if let [disk, others @ ..] = self.disks() {
            describe(&mut layer, disk);
            if !others.is_empty() {
                layer.add_fact("facts of", format!("{}, the first of {}", disk.name, others.len() + 1));
            }
        }
        layer.add_fact("cap", self.cap.map(|cap| Quantity::new(as_f64(cap), Unit::PerSecond)));
        layer
    }
}

/// Adds the facts about a disk that `lsds` shows, in the same order.
fn describe(layer: &mut Layer, disk: &Disk) {
    let bytes = |bytes: u64| Quantity::new(as_f64(bytes), Unit::Bytes);
    let count = |count: u32| Quantity::new(f64::from(count), Unit::Count);
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    layer.add_fact("size", disk.bytes.map(bytes));
    layer.add_fact("scheduler", disk.scheduler.clone());
    layer.add_fact("rotational", disk.rotational.map(yes));
    layer.add_fact("firmware", disk.firmware.clone());
    layer.add_fact("queue depth", disk.queue_depth.map(count));
    layer.add_fact("requests", disk.requests.map(count));
    layer.add_fact("write cache", disk.write_cache.clone());
    layer.add_fact(
        "cache mode that the drive reports",
        disk.drive_cache.clone().filter(|own| disk.write_cache.as_ref() != Some(own)),
    );
    layer.add_fact("FUA", disk.fua.map(yes));
    let sectors = disk.sectors.map(|(logical, physical)| format!("{logical} B, physically {physical} B"));
    layer.add_fact("sectors", sectors.map_or(Cell::Missing, Cell::from));
}

fn durability_of(disk: &Disk) -> FlushDurability {
    if let Some(host) = provider_of(disk) {
        return FlushDurability::HostDecides(host.to_owned());
    }
    let through =
        |mode: &Option<String>| mode.as_deref().is_some_and(|mode| mode.starts_with("write through"));
    let model = disk.model.as_deref().unwrap_or_default();
    let protected = PROTECTED_MODELS.iter().any(|prefix| model.starts_with(prefix));
    match (through(&disk.write_cache), &disk.drive_cache, protected) {
        (true, Some(own), _) if own.starts_with("write back") => FlushDurability::FlushesDisabled,
        (_, _, true) => FlushDurability::Protected,
        (true, _, false) => FlushDurability::WriteThrough,
        (false, _, false) if disk.write_cache.is_none() => {
            FlushDurability::Unknown(format!("the kernel does not say what cache \"{}\" has", disk.name))
        }
        (false, _, false) => FlushDurability::Volatile,
    }
}

/// Returns a virtual disk's provider, or `None` for a physical disk.
fn provider_of(disk: &Disk) -> Option<&'static str> {
    let model = disk.model.as_deref().unwrap_or_default();
    let by_model = VIRTUAL_MODELS.iter().find(|(part, _)| model.contains(part));
    // The model is better evidence than the name. Besides, tests simulate physical disks with loop devices that have a
    // model.
    let by_name = VIRTUAL_NAMES.iter().find(|(prefix, _)| model.is_empty() && disk.name.starts_with(prefix));
    by_model.or(by_name).map(|(_, host)| *host)
}

fn uncertainty(keeping: &FlushDurability) -> u8 {
    match keeping {
        FlushDurability::Memory | FlushDurability::Protected => 0,
        FlushDurability::WriteThrough => 1,
        FlushDurability::Volatile => 2,
        FlushDurability::Unknown(_) => 3,
        FlushDurability::HostDecides(_) => 4,
        FlushDurability::FlushesDisabled => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, model: &str, write_cache: &str) -> Disk {
        Disk {
            name: name.to_owned(),
            model: Some(model.to_owned()).filter(|model| !model.is_empty()),
            write_cache: Some(write_cache.to_owned()),
            ..Disk::default()
        }
    }

    fn device_durability(disks: impl IntoIterator<Item = Disk>) -> FlushDurability {
        let bottom = Bottom::Disks(disks.into_iter().collect());
        Device { stack: Stack { layers: Vec::new(), bottom }, cap: None }.flush_durability()
    }

    #[test]
    fn keeping_distinguishes_drives_hosts_and_cache_protection() {
        let samsung = disk("nvme0n1", "Samsung SSD 990 PRO 2TB", "write back");
        let micron = disk("nvme1n1", "Micron_7400_MTFDKBA960TDZ", "write through");
        let optane = disk("nvme2n1", "INTEL SSDPED1D280GA", "write through");
        let amazon = disk("nvme3n1", "Amazon Elastic Block Store", "write through");
        assert_eq!(device_durability([samsung.clone()]), FlushDurability::Volatile);
        assert_eq!(device_durability([micron.clone()]), FlushDurability::Protected);
        assert_eq!(device_durability([optane]), FlushDurability::WriteThrough);
        assert_eq!(
            device_durability([amazon]),
            FlushDurability::HostDecides("a network volume of AWS".to_owned())
        );
        assert_eq!(
            device_durability([disk("vda", "", "write back")]),
            FlushDurability::HostDecides("virtio".to_owned())
        );
        assert_eq!(
            device_durability([disk("sda", "QEMU HARDDISK", "write back")]),
            FlushDurability::HostDecides("QEMU".to_owned())
        );
        assert_eq!(device_durability([micron, samsung]), FlushDurability::Volatile);
        assert!(matches!(
            device_durability([Disk { name: "sdx".to_owned(), ..Disk::default() }]),
            FlushDurability::Unknown(_)
        ));
    }

    #[test]
    fn edited_cache_mode_counts_as_lying_disk() {
        let mut edited = disk("sda", "ST4000DM004", "write through");
        assert_eq!(device_durability([edited.clone()]), FlushDurability::WriteThrough);
        edited.drive_cache = Some("write back".to_owned());
        assert_eq!(device_durability([edited]), FlushDurability::FlushesDisabled);
    }
}
