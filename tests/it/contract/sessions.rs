//! Sessions: how long they live, that an ended one stays ended, and what is listed.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use vitrina::cache::Tiers;
use vitrina::clock::{Clock, ManualClock, SystemClock};
use vitrina::geo_zone::GeoZone;
use vitrina::sessions::model::{Noted, Session};
use vitrina::sessions::{SessionService, SessionStore};
use vitrina::telemetry::Metrics;

use crate::support::stores::TestStore;

crate::on_every_store!(
    a_session_is_read_as_it_was_written,
    an_ended_session_stays_ended,
    sessions_are_listed_newest_first,
    a_session_lives_a_day_and_a_guest_comes_back,
);

const HOUR: Duration = Duration::from_secs(3_600);

fn session(user: Option<&str>) -> Session {
    let now = SystemClock.now().to_millis_precision();
    Session {
        id: Uuid::from_u128(Uuid::new_v4().as_u128() ^ Uuid::new_v4().as_u128().rotate_left(64)),
        user: user.map(Into::into),
        created_at: now,
        last_activity: now,
        is_ended: false,
        noted: Noted {
            device_type: Some("веб".to_owned()),
            geo_zone: Some(GeoZone::parse("Москва").unwrap()),
            user_agent: None,
            address: Some("::1".to_owned()),
        },
    }
}

fn service(store: &TestStore, clock: Arc<dyn Clock>, tiers: &Tiers) -> SessionService {
    let sessions: Arc<dyn SessionStore> = store.store.clone();
    SessionService::new(sessions, clock, &[7; 32].into(), tiers, &Metrics::default())
}

async fn a_session_is_read_as_it_was_written(store: &TestStore) {
    for written in [session(None), session(Some("me"))] {
        assert_eq!(store.store.session(written.id).await.unwrap(), None);
        store.store.put_session(&written).await.unwrap();
        assert_eq!(store.store.session(written.id).await.unwrap(), Some(written.clone()));
        let later = Session { last_activity: written.last_activity.after(HOUR), ..written };
        store.store.put_session(&later).await.unwrap();
        assert_eq!(store.store.session(later.id).await.unwrap(), Some(later));
    }
}

async fn an_ended_session_stays_ended(store: &TestStore) {
    for written in [session(None), session(Some("me"))] {
        store.store.put_session(&written).await.unwrap();
        store.store.end_session(&written).await.unwrap();
        // Activity that is noted late does not bring it back.
        let late = Session { last_activity: written.last_activity.after(HOUR), ..written.clone() };
        store.store.put_session(&late).await.unwrap();
        let read = store.store.session(written.id).await.unwrap().unwrap();
        assert!(read.is_ended, "{read:?}");
        let service = service(store, Arc::new(SystemClock), &Tiers::Memory);
        assert_eq!(service.admit_id(written.id).await.unwrap(), None);
        assert_eq!(service.sessions_of("me").await.unwrap(), []);
    }
}

async fn sessions_are_listed_newest_first(store: &TestStore) {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let service = service(store, clock.clone(), &Tiers::Off);
    let mut begun = Vec::new();
    for number in 0..5 {
        clock.advance(Duration::from_secs(1));
        let noted = Noted { device_type: Some(format!("device {number}")), ..Noted::default() };
        begun.push(service.start(Some("me".into()), noted).await.unwrap().0);
        service.start(Some("you".into()), Noted::default()).await.unwrap();
        service.start(None, Noted::default()).await.unwrap();
    }
    begun.reverse();
    assert_eq!(service.sessions_of("me").await.unwrap(), begun);
    assert_eq!(service.sessions_of("nobody").await.unwrap(), []);
    assert!(
        !service.end(begun[1].id, |session| session.user.as_deref() == Some("you")).await.unwrap()
    );
    assert!(
        service.end(begun[1].id, |session| session.user.as_deref() == Some("me")).await.unwrap()
    );
    assert!(!service.end(begun[1].id, |_| true).await.unwrap(), "it has ended already");
    begun.remove(1);
    assert_eq!(service.sessions_of("me").await.unwrap(), begun);
    clock.advance(24 * HOUR);
    assert_eq!(service.sessions_of("me").await.unwrap(), []);
}

async fn a_session_lives_a_day_and_a_guest_comes_back(store: &TestStore) {
    for tiers in [Tiers::Off, Tiers::Memory] {
        let clock = Arc::new(ManualClock::new(SystemClock.now()));
        let service = service(store, clock.clone(), &tiers);
        let (guest, token) = service.start(None, Noted::default()).await.unwrap();
        let (_, customer) = service.start(Some("me".into()), Noted::default()).await.unwrap();
        assert_eq!(service.admit(&token).await.unwrap().as_deref(), Some(&guest));
        assert_eq!(service.guest_of(&token).await.unwrap(), Some(guest.id));
        assert_eq!(service.guest_of(&customer).await.unwrap(), None);
        // Activity keeps it alive.
        for _ in 0..3 {
            clock.advance(20 * HOUR);
            let admitted = service.admit(&token).await.unwrap().unwrap();
            assert_eq!(admitted.created_at, guest.created_at);
            let is_noted = async || {
                let read = store.store.session(guest.id).await.unwrap().unwrap();
                read.last_activity == admitted.last_activity
            };
            while !is_noted().await {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(service.admit(&customer).await.unwrap(), None, "60 hours without activity");
        // After 25 hours the guest begins anew under the same id.
        clock.advance(25 * HOUR);
        let anew = service.admit(&token).await.unwrap().unwrap();
        assert_eq!((anew.id, anew.created_at), (guest.id, clock.now().to_millis_precision()));
        clock.advance(30 * 24 * HOUR);
        assert_eq!(service.admit(&token).await.unwrap(), None, "thirty days without activity");
        assert_eq!(service.guest_of(&token).await.unwrap(), None);
    }
}
