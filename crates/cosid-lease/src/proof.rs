//! Seeded faults, for the proof to find (`docs/proof.md`). None is on, nor can be, in any build but the proof's own
//! (`--cfg cosid_proof`): elsewhere the question is a constant, and nothing is left of what follows a yes.

/// Whether the fault of this name is on: no.
#[cfg(not(cosid_proof))]
#[inline(always)]
pub(crate) const fn bug(_: &str) -> bool {
    false
}

#[cfg(cosid_proof)]
pub(crate) use cosid_proof_switch::bug;
