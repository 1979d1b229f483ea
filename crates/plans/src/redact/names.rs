//! Recognizes column names that suggest personal data or secrets.

/// Words that suggest personal data if they are a separate word in a name, such as `ip` in `client_ip` but not in
/// `description`.
const WORDS: &[&str] = &[
    "addr",
    "age",
    "bio",
    "city",
    "comment",
    "comments",
    "cvv",
    "dob",
    "fax",
    "gender",
    "ip",
    "ips",
    "ipv4",
    "ipv6",
    "jwt",
    "lat",
    "latitude",
    "login",
    "lng",
    "lon",
    "longitude",
    "mail",
    "message",
    "name",
    "names",
    "nationality",
    "note",
    "notes",
    "pin",
    "postcode",
    "pwd",
    "religion",
    "salary",
    "salt",
    "sex",
    "ssn",
    "street",
    "tax",
    "tel",
    "tin",
    "vat",
    "zip",
];
/// Strings that suggest personal data anywhere in a name.
const PARTS: &[&str] = &[
    "accountnumber",
    "address",
    "apikey",
    "birth",
    "cardnumber",
    "credential",
    "creditcard",
    "email",
    "firstname",
    "fullname",
    "iban",
    "ipaddr",
    "lastname",
    "mobile",
    "nickname",
    "passport",
    "passphrase",
    "passwd",
    "password",
    "phone",
    "postal",
    "secret",
    "socialsecurity",
    "surname",
    "token",
    "username",
];
/// Words that make a name ending in `id` suggest personal data, such as `passport_id`. Other names that end in `id`
/// refer to rows.
const IDENTITIES: &[&str] = &["driver", "login", "national", "passport", "social", "tax", "vat"];

/// Returns true if a column name suggests personal data or secrets.
pub(super) fn suggests_personal_data(column: &str) -> bool {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in column.chars() {
        let begins = !character.is_alphanumeric() || character.is_uppercase() && was_lower;
        if begins {
            words.push(String::new());
        }
        was_lower = character.is_lowercase();
        if character.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(character.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    if words.len() > 1 && words.last().is_some_and(|last| matches!(last.as_str(), "id" | "ids")) {
        return words.iter().any(|word| IDENTITIES.contains(&word.as_str()));
    }
    let joined = words.concat();
    words.iter().any(|word| WORDS.contains(&word.as_str())) || PARTS.iter().any(|part| joined.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_personal_data_are_known() {
        for name in [
            "email",
            "Email",
            "user_email",
            "emailAddress",
            "customer_name",
            "firstName",
            "last_name",
            "username",
            "phone2",
            "mobile_phone",
            "ip",
            "client_ip",
            "ip_address",
            "remoteIp",
            "api_token",
            "password_hash",
            "date_of_birth",
            "birthday",
            "ssn",
            "IBAN",
            "zip_code",
            "shipping address",
            "E-Mail",
        ] {
            assert!(suggests_personal_data(name), "{name}");
        }
        for name in [
            "id",
            "status",
            "description",
            "created_at",
            "total",
            "country_code",
            "zipped",
            "recipe",
            "amount",
        ] {
            assert!(!suggests_personal_data(name), "{name}");
        }
    }
}
