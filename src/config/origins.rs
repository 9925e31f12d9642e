//! The sites whose pages may use the shop from a browser.

use axum::http::uri::Authority;

use super::ConfigError;

/// Sites that pages come from, exactly as a browser names them: `https://shop.example`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(Vec<String>);

/// The setting that [`Origins::parse`] speaks of.
const CORS_ORIGINS: &str = "--cors-origins / VITRINA_CORS_ORIGINS";
/// Most sites: each request of a browser is compared with all of them.
const MAX_ORIGINS: usize = 100;

impl Origins {
    /// Reads `https://a.example,https://b.example:8443`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |fault: String| ConfigError::new(CORS_ORIGINS, fault);
        let mut origins = Vec::new();
        for entry in text.split(',').map(str::trim) {
            if entry == "*" {
                let fault = "takes no *: any site could then make its visitors' browsers ask; \
                             name the sites";
                return Err(wrong(fault.to_owned()));
            }
            let origin = origin(entry).ok_or_else(|| {
                let form = "https://host or https://host:port, or the same with http://";
                wrong(format!("has an entry that is not {form}, without a path and in ASCII"))
            })?;
            origins.push(origin);
        }
        if origins.len() > MAX_ORIGINS {
            return Err(wrong(format!("names more than {MAX_ORIGINS} sites")));
        }
        Ok(Self(origins))
    }

    /// Whether no site is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a site, as a browser names it, is one of these.
    pub fn has(&self, origin: &str) -> bool {
        self.0.iter().any(|own| own == origin)
    }
}

/// A site in the form that browsers send: in lower case, without the port that its scheme has.
fn origin(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (scheme, authority) = text.split_once("://")?;
    let own_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let parsed: Authority = authority.parse().ok()?;
    let (host, port) = (parsed.host(), parsed.port_u16());
    let with_port = port.map(|port| format!("{host}:{port}"));
    // What is more than a host and a port, such as a user or a port that is no number, is left out
    // of the two.
    let is_whole = with_port.as_deref().unwrap_or(host) == authority;
    if !is_whole || host.is_empty() || host.contains(['*', '%']) {
        return None;
    }
    let authority = with_port.filter(|_| port != Some(own_port));
    Some(format!("{scheme}://{}", authority.as_deref().unwrap_or(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_read_as_browsers_name_them() {
        let text = "https://A.example, http://localhost:5173,https://b.example:443,http://[::1]:80";
        let origins = Origins::parse(text).unwrap();
        for origin in
            ["https://a.example", "http://localhost:5173", "https://b.example", "http://[::1]"]
        {
            assert!(origins.has(origin), "{origin}");
        }
        for other in [
            "http://a.example",
            "https://a.example:444",
            "https://a.example.evil",
            "https://xa.example",
            "https://a.example/",
            "null",
            "",
        ] {
            assert!(!origins.has(other), "{other}");
        }
        assert!(Origins::default().is_empty() && !Origins::default().has(""));
    }

    #[test]
    fn what_is_no_site_is_refused_and_the_setting_named() {
        let many = vec!["https://a"; MAX_ORIGINS + 1].join(",");
        for text in [
            "",
            ",",
            "*",
            "https://a,*",
            "https://*.example",
            "null",
            "a.example",
            "ftp://a",
            "https://",
            "https://:443",
            "https://a/",
            "https://a/b",
            "https://a?b",
            "https://u:p@a",
            "https://a:x",
            "https://a:",
            "https://a:70000",
            "https://магазин.рф",
            "https://a b",
            "https://a;https://b",
            &many,
        ] {
            let error = Origins::parse(text).expect_err(text);
            assert_eq!(error.setting, CORS_ORIGINS, "{text}");
        }
    }
}
