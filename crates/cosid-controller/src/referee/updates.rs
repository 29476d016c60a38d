//! What an update of a slot's Lease may do: the algebra's inequalities.

use cosid_kube::codec::{
    CEILING, FLOOR, INCARNATION, LAST_OWNER, NEXT_FLOOR, POD_UID, POOL_LABEL, STORE_REGRESSED,
};
use cosid_lease::MAX_FENCE;

use super::callers::{callers, only_the_controllers, whole};
use super::{Named, Rule, controller, invalid, named};

/// The caller's pod: the API server puts it there for a token that is bound to one.
const CALLERS_POD: &str = "authentication.kubernetes.io/pod-uid";

/// How many fences a holder may put back at once.
const MOST_PUT_BACK: u32 = 65_536;

pub(super) fn variables(namespace: &str) -> Vec<Named> {
    let finalizers = |of: &str| format!("{of}.metadata.?finalizers.orValue([])");
    let owners = |of: &str| format!("{of}.metadata.?ownerReferences.orValue([])");
    let pool = |of: &str| format!("{of}.metadata.?labels[?'{POOL_LABEL}'].orValue('')");
    let annotations = |of: &str| format!("{of}.metadata.?annotations.orValue({{}})");
    let held = |of: &str| format!("{of}.?spec.?holderIdentity.orValue('') != ''");
    let fence = |of: &str| format!("{of}.?spec.?leaseTransitions.orValue(0)");
    vec![
        controller(namespace),
        named("pod", format!("request.userInfo.?extra[?'{CALLERS_POD}'][?0].orValue('')")),
        named("oldPool", pool("oldObject")),
        named("newPool", pool("object")),
        named("oldFinalizers", finalizers("oldObject")),
        named("newFinalizers", finalizers("object")),
        named("oldOwners", owners("oldObject")),
        named("newOwners", owners("object")),
        named("old", annotations("oldObject")),
        named("new", annotations("object")),
        named("wasHeld", held("oldObject")),
        named("isHeld", held("object")),
        named("oldFence", fence("oldObject")),
        named("newFence", fence("object")),
        named("oldPod", format!("variables.old[?'{POD_UID}'].orValue('')")),
        named("newPod", format!("variables.new[?'{POD_UID}'].orValue('')")),
        named(
            "putsBack",
            format!(
                "'{STORE_REGRESSED}' in variables.new && \
                 variables.new[?'{STORE_REGRESSED}'] != variables.old[?'{STORE_REGRESSED}']"
            ),
        ),
        named("wasReadable", readable("oldObject", "variables.old", "variables.wasHeld")),
        named("isReadable", readable("object", "variables.new", "variables.isHeld")),
        named("change", change()),
    ]
}

/// Which change this is. All rules build on it:
///
/// * `edit`: nothing of the slot's record, only metadata;
/// * `open`: the first next floor;
/// * `lift`: another next floor and nothing else;
/// * `barrier`: the controller's, after a store went backwards: free, under a higher fence;
/// * `renew`, `acquire`, `release`: as in the algebra;
/// * `tamper`: of a slot that was free and stays free.
fn change() -> String {
    format!(
        "(object.?spec == oldObject.?spec && ['{FLOOR}', '{CEILING}', '{INCARNATION}', '{LAST_OWNER}', '{POD_UID}']\
         .all(key, variables.new[?key] == variables.old[?key])) ? \
         (variables.new[?'{NEXT_FLOOR}'] == variables.old[?'{NEXT_FLOOR}'] ? 'edit' : \
         '{NEXT_FLOOR}' in variables.old ? 'lift' : 'open') : \
         !('{NEXT_FLOOR}' in variables.old) ? 'open' : \
         variables.controller && !variables.isHeld && variables.newFence > variables.oldFence ? 'barrier' : \
         variables.isHeld && variables.wasHeld && variables.newFence == variables.oldFence ? 'renew' : \
         variables.isHeld ? 'acquire' : variables.wasHeld ? 'release' : 'tamper'"
    )
}

/// A time of the spec: to these expressions it is a text.
fn time(object: &str, field: &str) -> String {
    format!("timestamp({object}.spec.{field})")
}

/// Whether the codec can read it: what it can't takes a slot out of use.
fn readable(object: &str, annotations: &str, is_held: &str) -> String {
    let read = |field: &str| {
        let time = time(object, field);
        format!(
            "has({object}.spec.{field}) && {time}.getFullYear() >= 1970 && {time}.getFullYear() < 9999 && \
             string({time}).matches('^[^.]*([.][0-9]{{1,3}})?Z$')"
        )
    };
    format!(
        "'{NEXT_FLOOR}' in {annotations} && has({object}.spec) && \
         has({object}.spec.leaseTransitions) && has({object}.spec.leaseDurationSeconds) && \
         ['{FLOOR}', '{CEILING}', '{NEXT_FLOOR}'].all(key, !(key in {annotations}) || \
         ({annotations}[key].matches('^(0|[1-9][0-9]{{0,18}})$') && \
         ({annotations}[key].size() < 19 || {annotations}[key] <= '{}'))) && \
         ({is_held} ? ['{FLOOR}', '{CEILING}'].all(key, key in {annotations}) && \
         {annotations}[?'{INCARNATION}'].orValue('').matches('^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$') && \
         {} && {} : \
         !['{FLOOR}', '{CEILING}', '{INCARNATION}', '{POD_UID}'].exists(key, key in {annotations}) && \
         !has({object}.spec.renewTime) && !has({object}.spec.acquireTime))",
        i64::MAX,
        read("renewTime"),
        read("acquireTime"),
    )
}

/// The first that does not hold is what the caller is told.
pub(super) fn rules() -> Vec<Rule> {
    [
        whole(),
        only_the_controllers(),
        readably(),
        fenced(),
        acquired(),
        renewed(),
        released(),
        held(),
        callers(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn readably() -> Vec<Rule> {
    vec![
        invalid(
            "variables.change in ['edit', 'open'] || variables.wasReadable",
            "'this Lease can\\'t be read, so its slot is out of use and nobody may change it; the events of SlotPool ' + \
             variables.oldPool + ' say what is wrong; take another slot'",
        ),
        invalid(
            "variables.change == 'edit' || variables.isReadable",
            format!(
                "'after this change nobody could read the Lease: times are decimal Unix ms below 2^63 ({NEXT_FLOOR} always, \
                 {FLOOR} and {CEILING} while held and only then), {INCARNATION} is a UUID, and a holder has a renewTime and \
                 an acquireTime in whole milliseconds; send what a cosid agent sends'"
            ),
        ),
        invalid(
            format!(
                "!(variables.change in ['lift', 'barrier']) || int(variables.new['{NEXT_FLOOR}']) >= int(variables.old['{NEXT_FLOOR}'])"
            ),
            format!(
                "'nobody lowers a next floor, from ' + variables.old['{NEXT_FLOOR}'] + ' to ' + \
                 variables.new['{NEXT_FLOOR}'] + ': IDs would repeat'"
            ),
        ),
    ]
}

fn fenced() -> Vec<Rule> {
    let from_to = "string(variables.oldFence) + ' to ' + string(variables.newFence)";
    vec![
        invalid(
            // A holder whose store was restored from a backup may be several changes of hands ahead of it. It says so, which
            // stops the pool, and can't use its fences up by it.
            format!(
                "variables.change in ['edit', 'open', 'barrier'] || variables.newFence - variables.oldFence in [0, 1] || \
                 (variables.change == 'acquire' && variables.putsBack && variables.newFence > variables.oldFence && \
                 variables.newFence - variables.oldFence <= {MOST_PUT_BACK})"
            ),
            format!(
                "'the fence (spec.leaseTransitions) moves by 0 or 1, not from ' + {from_to} + '; read the Lease again and \
                 decide anew'"
            ),
        ),
        invalid(
            "variables.change != 'acquire' || variables.newFence == variables.oldFence + 1 || \
             (variables.putsBack && variables.newFence > variables.oldFence)",
            format!(
                "'the fence (spec.leaseTransitions) grows by 1 with each acquisition, and does not go from ' + {from_to} + \
                 '; read the Lease again and decide anew'"
            ),
        ),
        invalid(
            format!(
                "variables.change != 'release' || variables.newFence == variables.oldFence + 1 || \
                 (variables.oldFence == {MAX_FENCE} && variables.newFence == {MAX_FENCE})"
            ),
            format!(
                "'the fence (spec.leaseTransitions) grows by 1 with each release, and does not go from ' + {from_to} + \
                 '; read the Lease again and decide anew'"
            ),
        ),
    ]
}

fn acquired() -> Vec<Rule> {
    let renewed = time("oldObject", "renewTime");
    let expiry = format!("{renewed} + duration(string(oldObject.spec.leaseDurationSeconds) + 's')");
    let acquired = time("object", "acquireTime");
    vec![
        invalid(
            format!(
                "variables.change != 'acquire' || \
                 int(variables.new['{FLOOR}']) >= int(variables.old['{NEXT_FLOOR}'])"
            ),
            format!(
                "'the new holder\\'s floor ' + variables.new['{FLOOR}'] + ' is below the next floor ' + \
                 variables.old['{NEXT_FLOOR}'] + ': IDs of an earlier holder would repeat; begin at the next floor'"
            ),
        ),
        invalid(
            format!("variables.change != 'acquire' || !variables.wasHeld || {acquired} >= {expiry}"),
            format!(
                "'this slot is held by ' + oldObject.spec.holderIdentity + ' until ' + string({expiry}) + ', and would be \
                 acquired at ' + string({acquired}) + '; wait for its expiry, or take another slot'"
            ),
        ),
    ]
}

fn renewed() -> Vec<Rule> {
    let grows = |field: &str| {
        invalid(
            format!(
                "variables.change != 'renew' || int(variables.new['{field}']) >= int(variables.old['{field}'])"
            ),
            format!(
                "'a renewal lowers nothing, and this one lowers {field} from ' + variables.old['{field}'] + ' to ' + \
                 variables.new['{field}'] + '; renew with what was read'"
            ),
        )
    };
    let kept = |is_kept: &str, field: &str| {
        invalid(
            format!("variables.change != 'renew' || {is_kept}"),
            format!(
                "'a renewal, under the same fence, does not change {field}; for another holder or window acquire the slot \
                 once it has expired'"
            ),
        )
    };
    let same = |field: &str| format!("object.spec.{field} == oldObject.spec.{field}");
    let (old, new) = (time("oldObject", "renewTime"), time("object", "renewTime"));
    let noted = |field: &str| format!("variables.new['{field}'] == variables.old['{field}']");
    vec![
        kept(&same("holderIdentity"), "the holder (spec.holderIdentity)"),
        kept(&noted(INCARNATION), INCARNATION),
        kept(&noted(FLOOR), FLOOR),
        kept(
            &format!("({} && {})", same("acquireTime"), same("leaseDurationSeconds")),
            "spec.acquireTime and spec.leaseDurationSeconds",
        ),
        // The duration is the same: so this compares the expiries.
        invalid(
            format!("variables.change != 'renew' || {new} >= {old}"),
            format!(
                "'a renewal lowers nothing, and this one brings the expiry forward: spec.renewTime goes from ' + \
                 string({old}) + ' to ' + string({new}) + '; renew with what was read'"
            ),
        ),
        grows(CEILING),
        grows(NEXT_FLOOR),
    ]
}

fn released() -> Vec<Rule> {
    vec![
        invalid(
            format!(
                "variables.change != 'release' || \
                 (int(variables.new['{NEXT_FLOOR}']) >= int(variables.old['{FLOOR}']) && \
                 int(variables.new['{NEXT_FLOOR}']) <= int(variables.old['{CEILING}']))"
            ),
            format!(
                "'a release leaves the last timestamp issued as {NEXT_FLOOR}, and ' + variables.new['{NEXT_FLOOR}'] + ' is \
                 outside the window from ' + variables.old['{FLOOR}'] + ' to ' + variables.old['{CEILING}'] + '; where \
                 nothing was issued leave the floor'"
            ),
        ),
        invalid(
            format!(
                "variables.change != 'release' || \
                 variables.new[?'{LAST_OWNER}'].orValue('') == oldObject.spec.holderIdentity"
            ),
            format!(
                "'a release leaves its holder, ' + oldObject.spec.holderIdentity + ', as {LAST_OWNER}; set it'"
            ),
        ),
    ]
}

fn held() -> Vec<Rule> {
    let ordered = |low: &str, high: &str, why: &str| {
        invalid(
            format!(
                "variables.change == 'edit' || !variables.isHeld || \
                 int(variables.new['{low}']) <= int(variables.new['{high}'])"
            ),
            format!(
                "'{high} ' + variables.new['{high}'] + ' is below {low} ' + variables.new['{low}'] + ': {why}'"
            ),
        )
    };
    vec![
        ordered(FLOOR, CEILING, "a window ends at or above its floor; set the ceiling to the floor or above"),
        ordered(
            FLOOR,
            NEXT_FLOOR,
            "the next holder would repeat the IDs of earlier ones; set the next floor to the ceiling",
        ),
        ordered(
            CEILING,
            NEXT_FLOOR,
            "the next holder would repeat this one\\'s IDs; set the next floor to the ceiling",
        ),
    ]
}
