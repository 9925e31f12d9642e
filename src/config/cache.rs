//! Where what was read is kept for a moment.

use super::{ConfigError, Secret, host_and_port};

/// Where the shop keeps what it has read a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheConfig {
    /// Nowhere: everything is read from the store.
    Off,
    /// In this process.
    Memory,
    /// In this process, and in a Redis that instances share.
    Redis(RedisConfig),
}

/// How to reach a Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The number of its database.
    pub db: u16,
    /// Name and password, where it asks for them; the name is empty for its default user.
    pub credentials: Option<(String, Secret)>,
}

/// The setting that [`CacheConfig::parse`] speaks of.
const CACHE: &str = "--cache / VITRINA_CACHE";
/// The port of a Redis that names none.
const REDIS_PORT: u16 = 6379;

impl CacheConfig {
    /// Reads `off`, `memory` or `redis://user:password@host:port/db`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        match text {
            "off" => return Ok(Self::Off),
            "memory" => return Ok(Self::Memory),
            _ => {}
        }
        match text.strip_prefix("redis://") {
            Some(rest) => RedisConfig::parse(rest).map(Self::Redis),
            None => Err(ConfigError::new(
                CACHE,
                "must be off, memory or redis://user:password@host:port/db",
            )),
        }
    }
}

impl RedisConfig {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        // No fault repeats the text, which may hold a password.
        let wrong = |fault: &str| ConfigError::new(CACHE, fault);
        let (login, rest) = match text.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, text),
        };
        let credentials = match login {
            Some(login) => Some(credentials(login).ok_or_else(|| {
                wrong("has something before @ that is not user:password, with %XX for : @ and %")
            })?),
            None => None,
        };
        let (address, db) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = host_and_port(address, REDIS_PORT)
            .ok_or_else(|| wrong("names a host that is not host or host:port"))?;
        let db = match db {
            "" => 0,
            db => db.parse().map_err(|_| wrong("has a database that is not a number"))?,
        };
        Ok(Self { host: host.to_owned(), port, db, credentials })
    }
}

/// Reads `user:password` or `:password`.
fn credentials(login: &str) -> Option<(String, Secret)> {
    let (user, password) = login.split_once(':')?;
    let (user, password) = (decode_percent(user)?, decode_percent(password)?);
    (!password.is_empty()).then(|| (user, Secret::new(password)))
}

/// Puts characters in the place of their `%XX`.
fn decode_percent(text: &str) -> Option<String> {
    let mut parts = text.as_bytes().split(|byte| *byte == b'%');
    let mut bytes = parts.next()?.to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        let is_code = code.iter().all(u8::is_ascii_hexdigit);
        let code = std::str::from_utf8(code).ok().filter(|_| is_code)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    fn redis(text: &str) -> RedisConfig {
        match CacheConfig::parse(text) {
            Ok(CacheConfig::Redis(config)) => config,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn reads_where_the_cache_is() {
        assert_eq!(CacheConfig::parse("off"), Ok(CacheConfig::Off));
        assert_eq!(CacheConfig::parse("memory"), Ok(CacheConfig::Memory));
        let config = redis("redis://cache-1:6380/2");
        assert_eq!((config.host.as_str(), config.port, config.db), ("cache-1", 6380, 2));
        assert_eq!(config.credentials, None);
        let config = redis("redis://10.0.0.1");
        assert_eq!((config.host.as_str(), config.port, config.db), ("10.0.0.1", REDIS_PORT, 0));
        let config = redis("redis://shop:p%40ss%3Aw%25@a/");
        assert_eq!(config.credentials, Some(("shop".to_owned(), Secret::new("p@ss:w%"))));
        let config = redis("redis://:a:b@c@a:1");
        assert_eq!(config.credentials, Some((String::new(), Secret::new("a:b@c"))));
    }

    #[test]
    fn refuses_a_cache_it_cannot_use_and_names_the_setting() {
        for text in [
            "",
            "on",
            "Memory",
            "redis:",
            "redis://",
            "redis://:1",
            "redis://a:0",
            "redis://a:b",
            "redis://a:70000",
            "redis://a b",
            "redis://a,b",
            "redis://a/x",
            "redis://a/-1",
            "redis://a/0/0",
            "redis://hunter2@a",
            "redis://user:@a",
            "redis://user:hunter2%@a",
            "redis://user:hunter2%+1@a",
            "redis://user:hunter2%FF@a",
            "redis://user:hunter2@",
            "rediss://a",
        ] {
            let error = CacheConfig::parse(text).expect_err(text);
            assert_eq!(error.setting, CACHE, "{text}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_cache_or_a_fault(
            text in prop_oneof![
                any::<String>(),
                "(redis://)?[a-z0-9.:,/?&=@%я-]{0,40}",
                "redis://([a-z%0-9]{0,6}:[a-z%0-9@:]{0,9}@)?[a-z0-9.]{0,6}(:[0-9]{0,5})?(/[0-9]{0,6})?",
            ],
        ) {
            match CacheConfig::parse(&text) {
                Ok(CacheConfig::Redis(config)) => {
                    prop_assert!(host_and_port(&config.host, REDIS_PORT).is_some());
                    prop_assert!(!config.host.contains(':') && config.port != 0);
                }
                Ok(_) => {}
                Err(fault) => prop_assert_eq!(fault.setting, CACHE),
            }
        }

        /// A fault is printed where others can read it.
        #[test]
        fn no_password_gets_into_a_fault(
            password in "[A-Z]{8}",
            around in ("[a-z:@%/]{0,8}", "[a-z0-9:@%/]{0,8}"),
        ) {
            let text = format!("redis://{}{password}{}", around.0, around.1);
            let told = match CacheConfig::parse(&text) {
                Err(fault) => format!("{fault} {fault:?}"),
                Ok(_) => String::new(),
            };
            prop_assert!(!told.contains(&password), "{}", told);
        }

        #[test]
        fn any_password_can_be_written(user in any::<String>(), password in ".+") {
            let escape = |text: &str| {
                text.bytes().fold(String::new(), |mut escaped, byte| {
                    write!(escaped, "%{byte:02X}").unwrap();
                    escaped
                })
            };
            let config = redis(&format!("redis://{}:{}@a", escape(&user), escape(&password)));
            prop_assert_eq!(config.credentials, Some((user, Secret::new(password))));
        }
    }
}
