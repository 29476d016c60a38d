/* IDs from the CosId agent of this pod or host: docs/c.md.
 *
 * Written by `cargo xtask codegen` from crates/libcosid. Don't edit. */

#ifndef COSID_H
#define COSID_H

#include <stdint.h>
#include <stddef.h>
#include <stdbool.h>

/*
 How a call went. `cosid_error` has it in words, with what to do about it. Numbers keep their meaning, new ones may come.
 */
enum cosid_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   It worked.
   */
  COSID_STATUS_OK = 0,
  /*
   No ID within the time allowed; later there can be one.
   */
  COSID_STATUS_NOT_YET = 1,
  /*
   The slot is lost. After `cosid_try_next`: call `cosid_reconnect` or `cosid_next`. After others: there was no other slot
   within the time allowed; try again.
   */
  COSID_STATUS_SLOT_LOST = 2,
  /*
   No path was given, and `COSID_SOCKET` is not set.
   */
  COSID_STATUS_NO_SOCKET = 3,
  /*
   The path cannot be that of a Unix socket.
   */
  COSID_STATUS_BAD_SOCKET_PATH = 4,
  /*
   No agent listens there.
   */
  COSID_STATUS_AGENT_ABSENT = 5,
  /*
   The agent did not answer in time.
   */
  COSID_STATUS_AGENT_SLOW = 6,
  /*
   The connection to the agent failed.
   */
  COSID_STATUS_CONNECTION = 7,
  /*
   What answered is no agent, or does not fit to this library.
   */
  COSID_STATUS_BAD_ANSWER = 8,
  /*
   The agent's page cannot be used.
   */
  COSID_STATUS_PAGE = 9,
  /*
   A generator's name has 1 to 64 letters, digits, `.`, `_` or `-`.
   */
  COSID_STATUS_BAD_NAME = 10,
  /*
   The agent has no slot yet.
   */
  COSID_STATUS_NO_SLOT = 11,
  /*
   All slots of the pool are held by others.
   */
  COSID_STATUS_EXHAUSTED = 12,
  /*
   The agent may not have a slot.
   */
  COSID_STATUS_REFUSED = 13,
  /*
   The agent has a slot, but cannot make its page.
   */
  COSID_STATUS_BLOCKED = 14,
  /*
   There is no room for another generator's name.
   */
  COSID_STATUS_TOO_MANY_GENERATORS = 15,
  /*
   The agent is ending.
   */
  COSID_STATUS_CLOSING = 16,
  /*
   The agent refused for another reason.
   */
  COSID_STATUS_AGENT = 17,
  /*
   No ID can be made, and waiting does not help: this host's clock or the pool's layout.
   */
  COSID_STATUS_IMPOSSIBLE = 18,
  /*
   A null pointer, a text that is no UTF-8, or a count that is not 1 to 100000.
   */
  COSID_STATUS_BAD_ARGUMENT = 19,
  /*
   A fault in this library.
   */
  COSID_STATUS_INTERNAL = 20,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cosid_status cosid_status;
#else
typedef int32_t cosid_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 What an agent is doing.
 */
enum cosid_state
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   Something that this version does not know.
   */
  COSID_STATE_UNKNOWN = 0,
  /*
   It reads its pool and its old state.
   */
  COSID_STATE_STARTING = 1,
  /*
   It tries to get a slot.
   */
  COSID_STATE_SEEKING = 2,
  /*
   All slots are held by others; it goes on trying.
   */
  COSID_STATE_EXHAUSTED = 3,
  /*
   It may not have a slot.
   */
  COSID_STATE_REFUSED = 4,
  /*
   It holds a slot.
   */
  COSID_STATE_HELD = 5,
  /*
   It holds a slot whose page it can't make.
   */
  COSID_STATE_BLOCKED = 6,
  /*
   It gives its slot back.
   */
  COSID_STATE_CLOSING = 7,
  /*
   It holds nothing and ends.
   */
  COSID_STATE_STOPPED = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cosid_state cosid_state;
#else
typedef int32_t cosid_state;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 A program's way to its agent. Threads may share it. It holds no connection and no open file: a process may fork at any
 time, and use it on both sides.
 */
typedef struct cosid_client cosid_client;

/*
 Makes the IDs of one name. Threads may share one, and a process may fork at any time.
 */
typedef struct cosid_generator cosid_generator;

/*
 What the agent holds. All times are Unix ms; what is not known or not there is 0 or empty.
 */
typedef struct {
  /*
   What it is doing. The fields from `slot` to `expires_at` are there while it is `COSID_STATE_HELD`.
   */
  cosid_state state;
  /*
   The slot.
   */
  uint32_t slot;
  /*
   Grows by 1 at each change of ownership.
   */
  uint64_t fence;
  /*
   Every timestamp issued is above it.
   */
  uint64_t floor;
  /*
   No timestamp issued is above it; moved on at each renewal.
   */
  uint64_t ceiling;
  /*
   When others may take the slot, by the store's clock.
   */
  uint64_t expires_at;
  /*
   While it is `COSID_STATE_EXHAUSTED`: when the first slot may be taken over, by the store's clock.
   */
  uint64_t earliest_expiry;
  /*
   The pool, as `namespace/name`; ended by a zero.
   */
  char pool[352];
  /*
   What the agent says in words, cut where it is longer; ended by a zero.
   */
  char message[512];
} cosid_lease_info;

/*
 What an ID says.
 */
typedef struct {
  /*
   Unix ms at which the ID's tick began.
   */
  uint64_t timestamp;
  /*
   The slot that made it.
   */
  uint32_t slot;
  /*
   Its number within its tick and slot.
   */
  uint32_t sequence;
} cosid_parts;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Whether the same call can succeed later without anybody changing anything. Never blocks.
 */
bool cosid_is_transient(int32_t status);

/*
 What the last call of this thread that failed said, and what to do about it; empty if none has. UTF-8, ended by a zero.
 Never null. Valid until the next call of a function of this library in this thread. Never blocks.
 */
const char *cosid_error(void);

/*
 Finds the agent and asks it once whether it is there; whether it holds a slot does not matter yet. Blocks for at most 2 s.

 `socket` is the path of the agent's socket; null is that in the environment variable `COSID_SOCKET`. `client` gets the
 handle, or null after a failure.

 Pointers:
 `socket` is null or a text ended by a zero; `client` is null or room for a pointer.
 */
cosid_status cosid_open(const char *socket,
                        cosid_client **client);

/*
 Frees a client; null is nothing. Its generators go on. Never blocks.

 Pointers:
 `client` is null or came from `cosid_open`, and no thread uses it any more.
 */
void cosid_close(cosid_client *client);

/*
 What the agent holds now. One round trip, for at most 2 s.

 Pointers:
 `client` is null or came from `cosid_open` and is not closed; `lease` is null or room for one.
 */
cosid_status cosid_lease(const cosid_client *client, cosid_lease_info *lease);

/*
 The generator of that name: 1 to 64 letters, digits, `.`, `_` or `-`. A pool and a name are one ID space; two names make
 equal numbers. While the agent has no slot yet this waits, for at most 2 s.

 `generator` gets the handle, or null after a failure.

 Pointers:
 `client` is null or came from `cosid_open` and is not closed; `name` is null or a text ended by a zero; `generator` is
 null or room for a pointer.
 */
cosid_status cosid_generator_open(const cosid_client *client,
                                  const char *name,
                                  cosid_generator **generator);

/*
 Frees a generator; null is nothing. Never blocks.

 Pointers:
 `generator` is null or came from `cosid_generator_open`, and no thread uses it any more.
 */
void cosid_generator_close(cosid_generator *generator);

/*
 The next ID. Does not block as long as there is one; else it waits, asleep, for at most `timeout_ms`, and moves to the
 agent's next slot if this one is lost.

 Pointers:
 `generator` is null or came from `cosid_generator_open` and is not closed; `id` is null or room for a number.
 */
cosid_status cosid_next(const cosid_generator *generator,
                        uint32_t timeout_ms,
                        uint64_t *id);

/*
 The next ID, if there is one now. Never blocks and asks nobody.

 After `COSID_STATUS_NOT_YET` `until` gets the Unix ms at which it is worth to try again, 0 if that depends on the agent; it
 may be null. After `COSID_STATUS_SLOT_LOST` any one thread has to call `cosid_reconnect` or `cosid_next`.

 Pointers:
 `generator` is null or came from `cosid_generator_open` and is not closed; `id` and `until` are null or room for a number.
 */
cosid_status cosid_try_next(const cosid_generator *generator,
                            uint64_t *id,
                            uint64_t *until);

/*
 Fills `ids` with `count` IDs, 1 to 100000, which grow but not always without gaps: one atomic operation for each
 millisecond that the batch needs. Blocks as `cosid_next`, for at most `timeout_ms` in all. After a failure `ids` holds
 zeros or IDs that must not be used.

 Pointers:
 `generator` is null or came from `cosid_generator_open` and is not closed; `ids` is null or room for `count` numbers.
 */
cosid_status cosid_next_batch(const cosid_generator *generator,
                              uint32_t timeout_ms,
                              uint64_t *ids,
                              size_t count);

/*
 Moves to the agent's next slot if this one is lost; else this does nothing. Only for programs that make IDs with
 `cosid_try_next` alone. Blocks for at most `timeout_ms`.

 Pointers:
 `generator` is null or came from `cosid_generator_open` and is not closed.
 */
cosid_status cosid_reconnect(const cosid_generator *generator,
                             uint32_t timeout_ms);

/*
 Takes an ID of this generator's pool apart. Never blocks.

 Pointers:
 `generator` is null or came from `cosid_generator_open` and is not closed; `parts` is null or room for them.
 */
cosid_status cosid_decode(const cosid_generator *generator, uint64_t id, cosid_parts *parts);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* COSID_H */
