//! Whose an update of a slot's Lease may be.

use cosid_kube::codec::{
    BARRED, CEILING, FINALIZER, FLOOR, INCARNATION, LAST_OWNER, NEXT_FLOOR, POD_UID, POOL_LABEL,
};

use super::{HOLD, Rule, forbidden, invalid};

/// What makes a Lease a slot's stays on it.
pub(super) fn whole() -> Vec<Rule> {
    vec![
        forbidden(
            "variables.controller || variables.newPool == variables.oldPool",
            format!(
                "'only the cosid controller changes the label {POOL_LABEL}, which would go from \"' + variables.oldPool + \
                 '\" to \"' + variables.newPool + '\"; leave it as it is'"
            ),
        ),
        forbidden(
            format!(
                "variables.controller || !('{FINALIZER}' in variables.oldFinalizers) || \
                 '{FINALIZER}' in variables.newFinalizers"
            ),
            format!(
                "'only the cosid controller takes the finalizer {FINALIZER} off, after it kept what the slot used; send \
                 back all that was read'"
            ),
        ),
        forbidden(
            "variables.controller || variables.newFinalizers.all(name, name in variables.oldFinalizers)",
            "'only the cosid controller adds finalizers: one that nobody takes off would keep the slot out of use for \
             ever; send back those that were read'",
        ),
        forbidden(
            "variables.controller || variables.oldOwners.all(owner, variables.newOwners.exists(other, other == owner))",
            "'only the cosid controller changes the owner of a slot\\'s Lease, its SlotPool; send back all that was read'",
        ),
        invalid(
            format!("!('{NEXT_FLOOR}' in variables.old) || '{NEXT_FLOOR}' in variables.new"),
            format!(
                "'{NEXT_FLOOR} may not be taken off, by anyone: only it says from where on the slot can be used again; \
                 send back all that was read'"
            ),
        ),
        forbidden(
            format!("variables.controller || !('{BARRED}' in variables.old) || '{BARRED}' in variables.new"),
            format!(
                "'only the cosid controller takes {BARRED} off, with a barrier above all that was used; send back all that \
                 was read'"
            ),
        ),
        // Who puts back what a restored store has lost took the slot before.
        invalid(
            format!("variables.change != 'acquire' || variables.putsBack || !('{BARRED}' in variables.old)"),
            "'the store was restored from a backup, and this slot may be in use: nobody acquires it before somebody runs \
             `kubectl cosid recover ' + variables.oldPool + ' -n ' + request.namespace + '`'",
        ),
        invalid(
            "!has(oldObject.metadata.deletionTimestamp) || variables.change == 'edit'",
            "'this Lease is being deleted, and what its slot used is being kept: nothing of it changes any more; take \
             another slot'",
        ),
    ]
}

/// Slots are opened, and next floors lifted, by the controller; nobody changes a free slot but by acquiring it.
pub(super) fn only_the_controllers() -> Vec<Rule> {
    vec![
        forbidden(
            "variables.change != 'open' || variables.controller",
            "'this slot is shut: only the cosid controller opens it, with a watermark read after it was made; wait for it, \
             or take another slot'",
        ),
        invalid(
            format!(
                "variables.change != 'open' || (!variables.isHeld && !variables.wasHeld && \
                 !has(oldObject.spec.leaseTransitions) && \
                 !['{FLOOR}', '{CEILING}', '{INCARNATION}', '{LAST_OWNER}', '{POD_UID}'].exists(key, key in variables.old))"
            ),
            format!(
                "'a slot is opened only if it was never used, and for nobody: this one has no {NEXT_FLOOR} but traces of \
                 use, so it stays out of use'"
            ),
        ),
        forbidden(
            "variables.change != 'lift' || variables.controller",
            "'only the cosid controller changes a next floor by itself; acquire, renew or release the slot'",
        ),
        invalid(
            "variables.change != 'tamper'",
            "'a slot that is free changes only by being acquired; acquire it, and release it then'",
        ),
    ]
}

/// A pod acts for itself only. Who has none needs to be trusted with the pool.
pub(super) fn callers() -> Vec<Rule> {
    let quoted = |pod: &str| format!("({pod} == '' ? 'no pod' : 'pod ' + {pod})");
    let (caller, old, new) =
        (quoted("variables.pod"), quoted("variables.oldPod"), quoted("variables.newPod"));
    vec![
        forbidden(
            "!(variables.change in ['renew', 'release']) || variables.oldPod == variables.pod",
            format!(
                "'this slot is held by ' + oldObject.spec.holderIdentity + ' for ' + {old} + ', and this is a ' + \
                 variables.change + ' by ' + {caller} + ': a holder\\'s lease is its own pod\\'s; take another slot'"
            ),
        ),
        forbidden(
            "!(variables.change in ['acquire', 'renew']) || variables.newPod == variables.pod",
            format!(
                "'the lease would be for ' + {new} + ' ({POD_UID}), and the caller\\'s token is bound to ' + {caller} + \
                 ': give the agent its pod\\'s UID by the downward API (POD_UID) and a projected token'"
            ),
        ),
        forbidden(
            "variables.change != 'edit' || variables.controller || variables.pod == '' || \
             (variables.wasHeld && variables.oldPod == variables.pod)",
            format!(
                "'a pod writes only the slots that it holds, and ' + {caller} + ' does not hold this one; acquire it if it \
                 is free'"
            ),
        ),
        // Asked of the authorizer only where there is no pod: it costs more than all other rules.
        forbidden(
            format!(
                "!(variables.change in ['acquire', 'renew', 'release']) || variables.pod != '' || \
                 authorizer.group('cosid.dev').resource('slotpools').namespace(request.namespace)\
                 .name(variables.oldPool).check('{HOLD}').allowed()"
            ),
            format!(
                "'' + request.userInfo.username + ' is no pod, and may not \"{HOLD}\" SlotPool ' + variables.oldPool + \
                 ': use a token that is bound to a pod, or be granted the verb {HOLD} on slotpools.cosid.dev'"
            ),
        ),
    ]
}
