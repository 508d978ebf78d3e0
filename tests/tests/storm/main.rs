//! Threads that do everything at once until nothing is left. The garbage of the process is looked at as a whole, so its
//! tests run one at a time ([`shared::Turn`]).

mod churn;
mod clean_storm;
mod clean_threads;
mod garbage;
mod linearizability;
mod shared;
