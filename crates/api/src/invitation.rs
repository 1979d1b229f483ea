//! Creates invitations that let a browser open the live page without the secret in the page's address.
//!
//! pgfresh passes the page's address to the browser as a command-line argument. Since every user on the machine can
//! read the arguments of every process, the address contains an invitation instead of the secret:
//!
//! ```text
//! ?invitation=SECONDS.DIGEST    time of expiry in seconds since 1970, and a digest of this time and the secret
//! ```
//! An invitation expires after a minute. Other users can't use it, because the kernel tells pgfresh which user a
//! connection belongs to.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway::Access;

/// Maximum time between the creation of an invitation and the browser's request.
const LIFETIME: Duration = Duration::from_mins(1);

/// Returns the live page's address with an invitation that works only in the same user's browser. `page` is the address
/// without secret and invitation.
#[must_use]
pub fn invite(page: &str, secret: &str) -> String {
    let until = now() + LIFETIME.as_secs();
    format!("{page}?invitation={until}.{}", digest(secret, until))
}

/// Returns true if `given` is a valid invitation that hasn't expired.
pub(crate) fn admits(access: &Access, given: &str) -> bool {
    let Some((until, digest_given)) = given.split_once('.') else { return false };
    let Ok(until) = until.parse::<u64>() else { return false };
    let lasts = until.checked_sub(now()).is_some_and(|left| left <= LIFETIME.as_secs());
    // Comparing digests takes constant time.
    lasts && blake3::Hash::from_hex(digest_given).is_ok_and(|given| given == digest(access.secret(), until))
}

fn digest(secret: &str, until: u64) -> blake3::Hash {
    let key = blake3::derive_key("pgfresh 2026 invitation to the live page", secret.as_bytes());
    blake3::keyed_hash(&key, &until.to_le_bytes())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invitation_is_valid_one_minute_for_one_secret() {
        let access = Access::new("secret".into(), "127.0.0.1:5433".parse().unwrap(), None);
        let url = invite("http://127.0.0.1:5433/", "secret");
        let given = url.strip_prefix("http://127.0.0.1:5433/?invitation=").unwrap();
        assert!(admits(&access, given) && !url.contains("secret"));
        let (until, mac) = given.split_once('.').unwrap();
        let until: u64 = until.parse().unwrap();
        let other = invite("", "another");
        let wrong = [
            String::new(),
            ".".to_owned(),
            format!("{until}"),
            format!("{}.{mac}", until + 1),
            format!("{until}.{}", &mac[1..]),
            other.trim_start_matches("?invitation=").to_owned(),
            // The digest is correct, but the time is in the past or too far in the future.
            format!("{}.{}", now() - 1, digest("secret", now() - 1)),
            format!("{}.{}", now() + 3600, digest("secret", now() + 3600)),
        ];
        for given in wrong {
            assert!(!admits(&access, &given), "{given}");
        }
    }
}
