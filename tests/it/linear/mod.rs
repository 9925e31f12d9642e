//! Stock is linearizable: what concurrent clients ask of a row and are told can be told as a story
//! of one thing after another, whatever is lost on the way.
//!
//! Clients record their calls ([`history`]), and the record is held against the rules of a row
//! ([`model`]) by a search for that story ([`checker`]). When there is none, the seed of the history
//! is printed with the least of it that is wrong. `VITRINA_TEST_SEED` decides what clients do, not
//! how the system lets them run: a history is not repeated by its seed alone.
//! `VITRINA_TEST_HISTORIES` says how many histories each test records.

mod checker;
mod clients;
mod history;
mod known;
mod model;
mod nodes;
mod planted;
mod play;
mod processes;
mod runs;
mod scene;
