//! Who makes and deletes a pool's Leases.

use cosid_kube::codec::{FINALIZER, NEXT_FLOOR, POOL_LABEL};

use super::{NAMESPACE_CONTROLLER, Named, Rule, controller, forbidden, invalid, named};

pub(super) fn variables(namespace: &str) -> Vec<Named> {
    vec![
        controller(namespace),
        named(
            "pool",
            format!(
                "request.operation == 'CREATE' ? object.metadata.labels['{POOL_LABEL}'] : \
                 oldObject.metadata.labels['{POOL_LABEL}']"
            ),
        ),
    ]
}

pub(super) fn rules() -> Vec<Rule> {
    vec![
        // A Lease that comes back with an old next floor (a backup, say) would let IDs repeat.
        forbidden(
            "request.operation != 'CREATE' || variables.controller",
            "'only the cosid controller makes the Leases of SlotPool ' + variables.pool + ', from its watermark; \
             a Lease that is missing comes by itself, so make none and restore none'",
        ),
        invalid(
            format!(
                "request.operation != 'CREATE' || (!('{NEXT_FLOOR}' in object.metadata.?annotations.orValue({{}})) && \
                 object.?spec.?holderIdentity.orValue('') == '' && \
                 '{FINALIZER}' in object.metadata.?finalizers.orValue([]))"
            ),
            format!(
                "'a Lease of SlotPool ' + variables.pool + ' is made shut and with the finalizer {FINALIZER}: without \
                 {NEXT_FLOOR} and without a holder; open it by an update, with a watermark read after this'"
            ),
        ),
        // The namespace goes as a whole, by its owner's will: the finalizers stay, and the controller keeps the history
        // before it takes them off. The garbage collector is not let through: by `--cascade=foreground` it would delete
        // the Leases of live holders, and a pool's Leases all go before the pool does without it.
        forbidden(
            format!(
                "request.operation != 'DELETE' || variables.controller || \
                 request.userInfo.username == '{NAMESPACE_CONTROLLER}'"
            ),
            "'only the cosid controller deletes the Leases of SlotPool ' + variables.pool + ', after it kept what their \
             slots used; to be rid of a slot, take it out of the pool (spec.slots, spec.reserved) or delete the pool'",
        ),
    ]
}
