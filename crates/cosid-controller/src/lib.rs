//! The SlotPool controller.
