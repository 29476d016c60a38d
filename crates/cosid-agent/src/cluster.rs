//! The way to the cluster, and the pool in it.
