//! What an app links: from the agent's socket to unique IDs; synchronous and small.
