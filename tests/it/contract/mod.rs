//! What every store must do: plain functions over the traits, run on each store by
//! `on_every_store!`. And what the caches must do on a real Redis.

mod browse;
mod cache;
mod carts;
mod catalog;
mod engine;
pub mod inventory;
mod migrations;
pub mod orders;
mod sessions;
