//! Getting a document by HTTP or HTTPS.

use std::error::Error as StdError;

use axum::body::Bytes;
use axum::http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};

/// Gets what is at an address; of more than `most` bytes, nothing. It goes where it was told to and
/// nowhere else: redirects are faults, as are all other answers than 200. What it takes for that is
/// made each time: that is seldom, and certificates of the machine that were renewed count at once.
pub(super) async fn fetch(address: &Uri, most: usize) -> Result<Vec<u8>, String> {
    let is_https = address.scheme_str() == Some("https");
    let connector = tokio::task::spawn_blocking(move || connector(is_https)).await;
    let connector = connector.map_err(|_| "looking for certificates was given up".to_owned())?;
    let connector = connector.map_err(|error| error.to_string())?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let request = Request::get(address).header("accept", "application/json").body(Empty::new());
    let request = request.map_err(|error| error.to_string())?;
    let response = client.request(request).await.map_err(|error| reasons(&error))?;
    if response.status() != StatusCode::OK {
        return Err(format!("the answer was {}", response.status()));
    }
    let body = Limited::new(response.into_body(), most).collect().await;
    Ok(body.map_err(|error| reasons(error.as_ref()))?.to_bytes().into())
}

/// Connects to `http` addresses, or to those of `https` whose certificates the machine trusts.
fn connector(is_https: bool) -> std::io::Result<HttpsConnector<HttpConnector>> {
    let builder = HttpsConnectorBuilder::new();
    if is_https {
        return Ok(builder.with_native_roots()?.https_only().enable_http1().build());
    }
    // A machine without any certificates can still do this.
    let nobody = RootCertStore::empty();
    let tls = ClientConfig::builder().with_root_certificates(nobody).with_no_client_auth();
    Ok(builder.with_tls_config(tls).https_or_http().enable_http1().build())
}

/// An error with what caused it: the outermost alone says that something failed.
fn reasons(error: &dyn StdError) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}
