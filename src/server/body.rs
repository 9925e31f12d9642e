//! Bodies of requests, each up to a limit and all that are still coming up to another.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;

use crate::app::App;
use crate::error::Error;

/// Memory for what has come of bodies that are not whole yet, all together: a client of HTTP/2 may send a
/// hundred at once on each of its connections.
const MAX_ARRIVED_BYTES: usize = 128 << 20;

/// Counts what has come of bodies that are not whole.
#[derive(Default)]
pub(crate) struct Arriving(AtomicUsize);

/// What has come of one of them.
struct Arrived<'a> {
    all: &'a Arriving,
    bytes: Vec<u8>,
    counted: usize,
}

impl Arriving {
    fn begin(&self) -> Arrived<'_> {
        Arrived { all: self, bytes: Vec::new(), counted: 0 }
    }
}

impl Arrived<'_> {
    /// False if there is no room for more.
    fn add(&mut self, bytes: &[u8]) -> bool {
        self.counted += bytes.len();
        let before = self.all.0.fetch_add(bytes.len(), Ordering::Relaxed);
        let has_room = before + bytes.len() <= MAX_ARRIVED_BYTES;
        if has_room {
            self.bytes.extend_from_slice(bytes);
        }
        has_room
    }
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// Reads a body up to the limit, whether its length was announced or not.
pub(super) async fn read_body(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Bytes, (StatusCode, Error)> {
    let too_large = || {
        let message = format!("The body has more than {limit} bytes.");
        (StatusCode::PAYLOAD_TOO_LARGE, Error::BadUserInput(message))
    };
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > limit) {
        return Err(too_large());
    }
    let mut body = Limited::new(body, limit);
    let mut arrived = app.arriving.begin();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) if error.is::<LengthLimitError>() => return Err(too_large()),
            Err(_) => {
                let message = "The body could not be read.".to_owned();
                return Err((StatusCode::BAD_REQUEST, Error::BadUserInput(message)));
            }
        };
        let Ok(bytes) = frame.into_data() else { continue };
        if arrived.bytes.is_empty() && body.is_end_stream() {
            // It came as a whole, as nearly all of them do.
            return Ok(bytes);
        }
        if !arrived.add(&bytes) {
            return Err((StatusCode::SERVICE_UNAVAILABLE, app.admission.sent_away()));
        }
    }
    Ok(std::mem::take(&mut arrived.bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_much_and_again_when_somebody_has_left() {
        let all = Arriving::default();
        let (mut one, mut other) = (all.begin(), all.begin());
        let half = vec![0; MAX_ARRIVED_BYTES / 2];
        assert!(one.add(&half) && other.add(&half));
        assert!(!other.add(&[0]));
        drop(other);
        assert!(one.add(&half));
        drop(one);
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }
}
