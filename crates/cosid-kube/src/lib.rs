//! The SlotPool resource, the Lease codec and the Kubernetes slot store.
