//! The checksum CRC-64/NVME, behind the interface of the crate `crc-fast`, whose place this one takes.
//!
//! `object_store` computes this one checksum, and only if `AWS_CHECKSUM_ALGORITHM` asks for it. The published crate computes a
//! hundred, with code for each kind of processor: 0.7 MB of the binary. Here is what `object_store` 0.14 calls, and no more. If
//! a newer version calls anything else, it does not compile; `[patch.crates-io]` of the workspace then goes, or this grows.

/// The polynomial, its bits reversed.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// What a byte does to a checksum.
static TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut rest, mut bits) = (byte as u64, 0);
        while bits < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bits += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
}

/// Which checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrcAlgorithm {
    /// That of NVM Express, as S3 has it.
    Crc64Nvme,
}

/// A checksum of the bytes so far.
#[derive(Debug, Clone)]
pub struct Digest {
    /// With all bits inverted.
    state: u64,
}

impl Digest {
    /// That of no bytes.
    #[must_use]
    pub fn new(algorithm: CrcAlgorithm) -> Self {
        match algorithm {
            CrcAlgorithm::Crc64Nvme => Self { state: u64::MAX },
        }
    }

    /// Adds these bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state = bytes.iter().fold(self.state, |state, byte| {
            let [lowest, ..] = state.to_le_bytes();
            state >> 8 ^ TABLE[usize::from(lowest ^ byte)]
        });
    }

    /// The checksum of all bytes that were added.
    #[must_use]
    pub fn finalize(&self) -> u64 {
        !self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&[u8]]) -> u64 {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        for piece in pieces {
            digest.update(piece);
        }
        digest.finalize()
    }

    #[test]
    fn it_is_the_checksum_of_nvm_express() {
        // The check value of the catalogue of checksums; then those of the NVM Command Set specification: 4 KiB of one value.
        assert_eq!(of(&[b"123456789"]), 0xae8b_1486_0a79_9888);
        assert_eq!(of(&[&[0; 4096]]), 0x6482_d367_eb22_b64e);
        assert_eq!(of(&[&[0xff; 4096]]), 0xc0dd_ba73_02ec_a3ac);
    }

    #[test]
    fn pieces_are_added_up() {
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[b"1234", b"", b"56789"]), of(&[b"123456789"]));
    }
}
