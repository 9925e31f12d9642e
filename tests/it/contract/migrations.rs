//! Migrations of Cassandra: run twice, and by several instances at once.

use futures_util::future::join_all;
use vitrina::storage::cassandra::{connect, migrate};

use crate::support::stores::cassandra_config;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_instances_may_migrate_at_once_and_again() {
    let Some(config) = cassandra_config() else { return };
    let sessions = join_all((0..3).map(|_| connect(&config))).await;
    let sessions: Vec<_> = sessions.into_iter().map(Result::unwrap).collect();
    let first = join_all(sessions.iter().map(|session| migrate(session, &config))).await;
    for migrated in first {
        migrated.unwrap();
    }
    migrate(&sessions[0], &config).await.unwrap();

    let cql =
        format!("SELECT number FROM {}.schema_migrations WHERE part = 'schema'", config.keyspace);
    let rows = sessions[0].query_unpaged(cql, ()).await.unwrap().into_rows_result().unwrap();
    let numbers: Vec<i32> = rows.rows::<(i32,)>().unwrap().map(|row| row.unwrap().0).collect();
    assert_eq!(numbers, (1..=i32::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
    assert!(!numbers.is_empty());

    let ks = &config.keyspace;
    let cql =
        format!("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{ks}'");
    let rows = sessions[0].query_unpaged(cql, ()).await.unwrap().into_rows_result().unwrap();
    let (replication,) = rows.single_row::<(std::collections::HashMap<String, String>,)>().unwrap();
    assert_eq!(replication["dc1"], "1");
    assert!(replication["class"].ends_with("NetworkTopologyStrategy"));
}
