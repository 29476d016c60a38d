//! Slot leases with timestamp windows: the algebra, the slot choice, the keeper; no clock, no I/O.
