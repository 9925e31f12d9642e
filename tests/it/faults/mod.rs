//! Processes that are killed, and what is left.

mod embedded;
mod start;
