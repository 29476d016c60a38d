//! What C programs may do wrong, and what they are told.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unsafe_code, reason = "the functions are called as from C")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "every pointer here is null, or one to a local variable"
)]

use std::ffi::{CStr, CString};
use std::ptr;

use cosid::{
    CosidClient, CosidGenerator, CosidStatus, cosid_close, cosid_decode, cosid_error, cosid_generator_close,
    cosid_generator_open, cosid_lease, cosid_next, cosid_next_batch, cosid_open, cosid_reconnect,
    cosid_try_next,
};

fn error() -> String {
    unsafe { CStr::from_ptr(cosid_error()) }.to_string_lossy().into_owned()
}

#[test]
fn null_is_refused_by_name_everywhere_and_freed_as_nothing() {
    let (client, generator) = (ptr::null::<CosidClient>(), ptr::null::<CosidGenerator>());
    let mut id = 7_u64;
    let mut made = ptr::dangling_mut();
    let refused = unsafe {
        [
            cosid_open(c"/x".as_ptr(), ptr::null_mut()),
            cosid_lease(client, ptr::null_mut()),
            cosid_generator_open(client, c"orders".as_ptr(), &raw mut made),
            cosid_generator_open(client, ptr::null(), ptr::null_mut()),
        ]
    };
    assert_eq!(refused, [CosidStatus::BadArgument; 4]);
    assert!(made.is_null(), "after a failure there is no handle");

    let refused = unsafe {
        [
            cosid_next(generator, 0, &raw mut id),
            cosid_try_next(generator, &raw mut id, ptr::null_mut()),
            cosid_next_batch(generator, 0, &raw mut id, 1),
            cosid_reconnect(generator, 0),
            cosid_decode(generator, 1, ptr::null_mut()),
        ]
    };
    assert_eq!(refused, [CosidStatus::BadArgument; 5]);
    assert!(error().contains("cosid_generator_open makes one"), "{}", error());
    assert_eq!(id, 7, "nothing is written after a failure");
    unsafe {
        cosid_close(ptr::null_mut());
        cosid_generator_close(ptr::null_mut());
    }
}

#[test]
fn a_missing_agent_is_said_in_words_of_this_thread() {
    let mut client = ptr::null_mut();
    let missing = CString::new("/nowhere/agent.sock").unwrap();
    assert_eq!(unsafe { cosid_open(missing.as_ptr(), &raw mut client) }, CosidStatus::AgentAbsent);
    assert!(client.is_null());
    assert!(error().contains("no agent at /nowhere/agent.sock"), "{}", error());
    assert_eq!(error(), error(), "it may be asked for twice");
    assert_eq!(std::thread::spawn(error).join().unwrap(), "", "another thread has had no failure");

    let no_text = c"\xff\xfe";
    assert_eq!(unsafe { cosid_open(no_text.as_ptr(), &raw mut client) }, CosidStatus::BadArgument);
    assert!(error().contains("UTF-8"), "{}", error());
}
