//! Checkouts under their keys: changed from one version to the next only, and all of them found.

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use uuid::Uuid;
use vitrina::checkout::model::{Checkout, CheckoutState, LEASE, Short};
use vitrina::clock::{Clock, SystemClock};
use vitrina::owner::Owner;
use vitrina::product_id::ProductId;
use vitrina::storage::{Due, Task};

use super::{AT_ONCE, new_user, order_at};
use crate::support::stores::TestStore;

crate::on_every_store!(
    a_checkout_changes_only_from_the_version_before,
    of_several_who_begin_or_turn_a_checkout_at_once_one_does,
    a_scan_finds_every_checkout,
);

fn checkout(owner: &Owner, key: &str) -> Checkout {
    let now = SystemClock.now();
    Checkout {
        owner: owner.clone(),
        key: key.into(),
        request: "123".to_owned(),
        state: CheckoutState::Open { until: now.after(LEASE) },
        order: order_at(owner, now),
        due_at: now.after(LEASE),
        changed_at: now,
        version: 1,
    }
}

fn due_of(checkout: &Checkout) -> Due {
    let task = Task::Checkout { owner: checkout.owner.clone(), key: checkout.key.clone() };
    Due { at: checkout.due_at, task }
}

async fn a_checkout_changes_only_from_the_version_before(store: &TestStore) {
    let store = store.store.as_ref();
    let guest = Uuid::new_v4();
    // One key of two owners, and two keys of one, are different checkouts.
    let owners = [Owner::Guest(guest), Owner::User(guest.simple().to_string().into())];
    for (owner, key) in owners.iter().flat_map(|owner| [(owner, "ключ-1"), (owner, "ключ")])
    {
        assert_eq!(store.checkout(owner, key).await.unwrap(), None);
        let open = checkout(owner, key);
        let due = due_of(&open);
        let turned = |state| open.turned(state, SystemClock.now());
        assert!(
            !store.change_checkout(Some(1), &open, None).await.unwrap(),
            "there is none to be changed"
        );
        assert_eq!(store.checkout(owner, key).await.unwrap(), None);
        assert!(store.change_checkout(None, &open, Some(&due)).await.unwrap());
        let noted = store.due(due.shard(), (due.at, due.at), 10).await.unwrap();
        assert!(noted.due.contains(&due), "{noted:?}");
        assert!(!store.change_checkout(None, &checkout(owner, key), None).await.unwrap());
        assert_eq!(store.checkout(owner, key).await.unwrap(), Some(open.clone()));
        let short = Short { product: ProductId::parse("П1").unwrap(), requested: 3, available: 1 };
        for state in [
            CheckoutState::Accepted,
            CheckoutState::Undone,
            CheckoutState::Refused(vec![short.clone()]),
        ] {
            let before = store.checkout(owner, key).await.unwrap().unwrap();
            let after = before.turned(state.clone(), SystemClock.now());
            let next = Some(before.version + 1);
            assert!(!store.change_checkout(next, &after, None).await.unwrap(), "not so far yet");
            assert!(store.change_checkout(Some(before.version), &after, None).await.unwrap());
            assert!(
                !store.change_checkout(Some(before.version), &after, None).await.unwrap(),
                "it has changed"
            );
            assert_eq!(store.checkout(owner, key).await.unwrap(), Some(after.clone()));
            assert_eq!(store.settled_checkout(owner, key).await.unwrap(), Some(after));
        }
        assert!(
            !store.change_checkout(Some(1), &turned(CheckoutState::Undone), None).await.unwrap()
        );
        assert!(!store.change_checkout(None, &open, None).await.unwrap());
    }
}

async fn of_several_who_begin_or_turn_a_checkout_at_once_one_does(store: &TestStore) {
    let store = store.store.as_ref();
    let owner = new_user();
    for round in 0..4 {
        let key = format!("key-{round}");
        let mut before: Option<Checkout> = None;
        for _ in 0..3 {
            let expected = before.as_ref().map(|before| before.version);
            let proposals = (0..6)
                .map(|_| Checkout { version: expected.unwrap_or(0) + 1, ..checkout(&owner, &key) });
            let proposals: Vec<_> = proposals.collect();
            let changes =
                proposals.iter().map(|after| store.change_checkout(expected, after, None));
            let told = join_all(changes).await;
            let there = store.settled_checkout(&owner, &key).await.unwrap();
            let winners: Vec<_> = proposals
                .iter()
                .zip(&told)
                .filter(|(_, told)| matches!(told, Ok(true)))
                .map(|(after, _)| after)
                .collect();
            assert!(winners.len() <= 1, "{told:?}");
            assert!(winners.iter().all(|winner| Some(*winner) == there.as_ref()), "{told:?}");
            // Racing conditional writes may time out; without that one of them is told so.
            assert!(winners.len() == 1 || told.iter().any(Result::is_err), "{told:?}");
            if there == before {
                continue;
            }
            assert!(proposals.iter().any(|after| Some(after) == there.as_ref()));
            before = there;
        }
    }
}

async fn a_scan_finds_every_checkout(store: &TestStore) {
    let store = store.store.as_ref();
    assert!(store.scan_checkouts(None).await.unwrap().next.is_none());
    let owners: Vec<_> = (0..20).map(|_| new_user()).collect();
    // More than one step has.
    let all = (0..520_usize).map(|n| checkout(&owners[n % 20], &format!("ключ-{n}")));
    let mut all: Vec<_> = all.collect();
    stream::iter(&all)
        .for_each_concurrent(AT_ONCE, async |checkout| {
            // A lost reply is a reply to whoever asks again.
            while store.change_checkout(None, checkout, None).await.is_err() {}
        })
        .await;
    let (mut found, mut after, mut steps) = (Vec::new(), None, 0);
    loop {
        let step = store.scan_checkouts(after).await.unwrap();
        found.extend(step.checkouts);
        after = step.next;
        steps += 1;
        if after.is_none() {
            break;
        }
    }
    assert!(steps > 1);
    found.sort_by_key(|checkout| checkout.order.id);
    all.sort_by_key(|checkout| checkout.order.id);
    assert_eq!(found, all);
}
