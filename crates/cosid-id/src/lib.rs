//! Snowflake-style IDs from a shared window page: layouts, generators, decoding.
