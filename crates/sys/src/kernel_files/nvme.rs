//! Reads an `NVMe` drive's thermal counters, which show whether heat slowed down a measurement. The counters
//! are in the "SMART / Health Information" log page, which only root can read.
//!
//! Source: NVM Express Base Specification, log page 02h (thermal throttling counters since revision 1.3);
//! Linux, `include/uapi/linux/nvme_ioctl.h`.

use std::cell::Cell;
use std::fs::File;
use std::time::{Duration, Instant};

use super::disk::{Disk, read_trimmed};
use super::mount::Roots;
use crate::system;

/// Size of the log page in bytes.
pub(crate) const PAGE_SIZE: usize = 512;
/// How long to reuse a response, because frequent requests would disturb the drive. The kernel's own sensor
/// uses the same interval (drivers/nvme/host/hwmon.c).
const MAX_RESPONSE_AGE: Duration = Duration::from_secs(1);

/// Thermal counters over the lifetime of a drive. A drive that doesn't support a counter reports 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heat {
    /// Number of times the drive started throttling itself or throttled itself further.
    pub throttles: u64,
    /// Number of seconds during which the drive throttled itself.
    pub throttled: u64,
    /// Number of minutes at or above the warning temperature.
    pub overheated: u64,
}

/// The thermal part of the log page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Health {
    /// Temperature in degrees Celsius.
    pub(super) temperature: Option<f64>,
    /// True if the temperature is outside the drive's thresholds.
    pub(super) alarm: bool,
    pub(super) heat: Heat,
}

/// An open drive with its most recent response.
#[derive(Debug)]
pub(super) struct Nvme {
    device: File,
    answer: Cell<Option<(Instant, Option<Health>)>>,
}

impl Heat {
    /// Returns how much each counter has increased since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            throttles: self.throttles.saturating_sub(earlier.throttles),
            throttled: self.throttled.saturating_sub(earlier.throttled),
            overheated: self.overheated.saturating_sub(earlier.overheated),
        }
    }
}

impl Health {
    fn parse(page: &[u8; PAGE_SIZE]) -> Self {
        let number = |at: usize| {
            let bytes = [page[at], page[at + 1], page[at + 2], page[at + 3]];
            u64::from(u32::from_le_bytes(bytes))
        };
        let kelvin = u16::from_le_bytes([page[1], page[2]]);
        Self {
            temperature: (kelvin > 0).then(|| f64::from(kelvin) - 273.15),
            alarm: page[0] & 0b10 != 0,
            heat: Heat {
                throttles: number(216) + number(220),
                throttled: number(224) + number(228),
                overheated: number(192) + number(196),
            },
        }
    }
}

impl Nvme {
    /// Opens `disk`. Returns `None` if it isn't an `NVMe` drive, or if we aren't allowed to open it.
    pub(super) fn open(roots: &Roots, disk: &Disk) -> Option<Self> {
        // Unless the roots are the default ones, `disk` belongs to a different
        // machine, so this machine's `nvme0n1` would be the wrong drive.
        if *roots != Roots::default() || !disk.name.starts_with("nvme") {
            return None;
        }
        let number = read_trimmed(&disk.folder.join("dev"))?;
        system::nvme::open_drive(&disk.name, &number).map(Self::from)
    }

    /// Returns the current values, either from the drive or from a response less than a second old. Returns
    /// `None` if the drive or the kernel refuses the request.
    pub(super) fn health(&self) -> Option<Health> {
        match self.answer.get() {
            Some((when, health)) if when.elapsed() < MAX_RESPONSE_AGE => health,
            _ => {
                let health = self.request_health();
                self.answer.set(Some((Instant::now(), health)));
                health
            }
        }
    }

    fn request_health(&self) -> Option<Health> {
        let mut page = [0; PAGE_SIZE];
        system::nvme::read_health_page(&self.device, &mut page).then(|| Health::parse(&page))
    }
}

impl From<File> for Nvme {
    fn from(device: File) -> Self {
        Self { device, answer: Cell::new(None) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn health_page_is_parsed_at_specified_offsets() {
        let mut page = [0; PAGE_SIZE];
        assert_eq!(Health::parse(&page), Health { temperature: None, alarm: false, heat: Heat::default() });
        page[0] = 0b0000_0010;
        page[1..3].copy_from_slice(&358_u16.to_le_bytes());
        page[5] = 0xff;
        for (at, value) in [(192, 7_u32), (196, 2), (216, 300), (220, 4), (224, 70_000), (228, u32::MAX)] {
            page[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let health = Health::parse(&page);
        assert_eq!((health.temperature.map(f64::round), health.alarm), (Some(85.0), true));
        let heat = Heat { throttles: 304, throttled: 70_000 + u64::from(u32::MAX), overheated: 9 };
        assert_eq!(health.heat, heat);
        let earlier = Heat { throttles: 300, throttled: 70_000, overheated: 10 };
        let since = heat.since(earlier);
        assert_eq!((since.throttles, since.throttled, since.overheated), (4, u32::MAX.into(), 0));
        page[0] = !0b0000_0010;
        assert!(!Health::parse(&page).alarm);
    }

    #[test]
    fn file_is_no_nvme_drive() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Nvme::from(file).health(), None);
    }

    #[test]
    fn nvme_open_refuses_alternative_roots() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("dev"), "259:0\n").unwrap();
        let disk = Disk { name: "nvme0n1".to_owned(), folder: root.path().to_owned(), ..Disk::default() };
        for roots in [
            Roots { sysfs: root.path().to_owned(), ..Roots::default() },
            Roots { procfs: root.path().to_owned(), ..Roots::default() },
        ] {
            assert!(Nvme::open(&roots, &disk).is_none());
        }
    }
}
