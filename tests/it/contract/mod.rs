//! What every store must do: plain functions over the traits, run on each store by
//! `on_every_store!`.

mod browse;
mod catalog;
mod engine;
mod migrations;
