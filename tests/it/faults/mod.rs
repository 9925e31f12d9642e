//! Processes that are killed, and what is left.

mod catalogue;
mod commands;
mod documents;
mod embedded;
mod life;
mod orders;
mod outage;
mod secrets;
mod start;
mod stock;
