//! Reads the machine's state during a measurement: temperature, pressure and dirty
//! pages. These values show whether the machine's state caused a slow result.

use std::fs;
use std::path::PathBuf;

use super::bytes_of;
use super::disk::{Disk, read_trimmed, sorted_entries};
use super::mount::Roots;
use super::nvme::{Heat, Nvme};
use super::shortage::pressure;

/// A snapshot of the machine's state. Fields are `None` if the machine doesn't report the value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Readings {
    /// Temperature of the disk's hottest sensor, in degrees Celsius.
    pub temperature: Option<f64>,
    /// True if the disk reports overheating.
    pub alarm: Option<bool>,
    /// Thermal counters of the disk. Only `NVMe` drives have them, and only root can read them.
    pub heat: Option<Heat>,
    /// Number of times since boot that a processor was throttled because of heat.
    pub throttles: Option<u64>,
    /// Number of seconds since boot during which at least one task was waiting for I/O. See [`pressure`].
    pub io_pressure: Option<f64>,
    /// Number of seconds since boot during which at least one task was waiting for a processor.
    pub cpu_pressure: Option<f64>,
    /// Number of page cache bytes that the kernel is writing to disk or still has to write.
    pub dirty: Option<u64>,
}

/// One disk's sensors. A reading takes about 0.1 ms. Don't take more than one per second, because that would
/// disturb the measurement.
#[derive(Debug)]
pub struct Sensors {
    roots: Roots,
    temperatures: Vec<PathBuf>,
    alarms: Vec<PathBuf>,
    drive: Option<Nvme>,
    /// Temperature in degrees Celsius at which the disk throttles itself, if the disk reports one.
    pub limit: Option<f64>,
}

impl Sensors {
    /// Finds the sensors of `disk`. If `disk` is `None`, readings contain only the machine's values.
    #[must_use]
    pub fn of(roots: &Roots, disk: Option<&Disk>) -> Self {
        let folders = disk.map(sensors_of).unwrap_or_default();
        let inputs = folders.iter().flat_map(|folder| sorted_entries(folder));
        let temperatures: Vec<PathBuf> = inputs
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("temp") && name.ends_with("_input")
            })
            .collect();
        let alarms = ["temp1_alarm", "temp1_crit_alarm"];
        let alarms = folders.iter().flat_map(|folder| alarms.map(|alarm| folder.join(alarm))).collect();
        let limit = folders.iter().find_map(|folder| degrees(&folder.join("temp1_max")));
        let drive = disk.and_then(|disk| Nvme::open(roots, disk));
        Self { roots: roots.clone(), temperatures, alarms, drive, limit }
    }

    /// Reads all sensors.
    #[must_use]
    pub fn read(&self) -> Readings {
        let procfs = &self.roots.procfs;
        let memory = fs::read_to_string(procfs.join("meminfo")).unwrap_or_default();
        let bytes = |name: &str| bytes_of(&memory, name);
        let temperature = self.temperatures.iter().filter_map(|sensor| degrees(sensor)).reduce(f64::max);
        let alarm = self.alarms.iter().filter_map(|alarm| Some(read_trimmed(alarm)? == "1")).max();
        let health = self.drive.as_ref().and_then(Nvme::health);
        Readings {
            temperature: temperature.or(health.and_then(|health| health.temperature)),
            alarm: alarm.or(health.map(|health| health.alarm)),
            heat: health.map(|health| health.heat),
            throttles: self.throttles(),
            io_pressure: pressure(procfs, "io"),
            cpu_pressure: pressure(procfs, "cpu"),
            dirty: bytes("Dirty").zip(bytes("Writeback")).map(|(dirty, writeback)| dirty + writeback),
        }
    }

    /// Returns how often processors were throttled, summed over all processors. Source: Linux, drivers:
    /// `thermal_throttle` of x86 processors.
    fn throttles(&self) -> Option<u64> {
        let processors = sorted_entries(&self.roots.sysfs.join("devices/system/cpu"));
        let counts = processors.iter().filter_map(|processor| {
            read_trimmed(&processor.join("thermal_throttle/core_throttle_count"))?.parse::<u64>().ok()
        });
        counts.reduce(|sum, count| sum + count)
    }
}

/// Returns the hwmon directories of `disk` or its controller. Source: Linux, Documentation/hwmon (`nvme`,
/// 5.5; `drivetemp`, 5.6).
fn sensors_of(disk: &Disk) -> Vec<PathBuf> {
    let device = disk.folder.join("device");
    let beside = [device.clone(), device.join("hwmon"), device.join("device"), device.join("device/hwmon")];
    let found = beside.iter().find_map(|folder| {
        let temperatures: Vec<PathBuf> = sorted_entries(folder)
            .into_iter()
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.strip_prefix("hwmon").is_some_and(|rest| rest.parse::<u32>().is_ok())
            })
            .collect();
        (!temperatures.is_empty()).then_some(temperatures)
    });
    found.unwrap_or_default()
}

/// Reads a file that contains millidegrees and returns degrees.
fn degrees(path: &std::path::Path) -> Option<f64> {
    Some(read_trimmed(path)?.parse::<f64>().ok()? / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::super::fake_machine::Machine;
    use super::*;

    #[test]
    fn pressure_and_unwritten_pages_are_read() {
        let machine = Machine::new();
        machine.put("proc/pressure/io", "some avg10=1.00 avg60=0.00 avg300=0.00 total=1500000\nfull total=9");
        machine.put(
            "proc/meminfo",
            "MemTotal: 1 kB\nDirty:            30 kB\nWriteback:         2 kB\nWritebackTmp: 9 kB",
        );
        machine.put("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3");
        machine.put("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "4");
        machine.put("proc/pressure/cpu", "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000");
        let readings = Sensors::of(&machine.roots, None).read();
        assert_eq!(
            (readings.io_pressure, readings.cpu_pressure, readings.dirty),
            (Some(1.5), Some(2.5), Some(32 * 1024))
        );
        assert_eq!((readings.throttles, readings.temperature), (Some(7), None));
    }
}
