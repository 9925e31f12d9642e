//! Processes that are killed, and what is left.

mod catalogue;
mod commands;
mod embedded;
mod orders;
mod start;
mod stock;
