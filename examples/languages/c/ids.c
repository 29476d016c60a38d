/* IDs in C, over libcosid: threads that share one generator, which is made once.
 *
 *   gcc -std=c11 -Icrates/libcosid/include examples/languages/c/ids.c -Ltarget/debug -lcosid -lpthread -o ids
 *   LD_LIBRARY_PATH=target/debug COSID_SOCKET=... ./ids orders 4 1000
 *
 * Prints 1000 IDs of each of 4 threads.
 */
#include <cosid.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_MS = 2000, BATCH = 256, MOST_THREADS = 64 };

struct work {
  const cosid_generator *generator;
  size_t count;
};

/* What a call says is kept for each thread: ask for it in the one that made the call. */
static void fail(const char *doing) {
  fprintf(stderr, "cannot %s: %s\n", doing, cosid_error());
  exit(1);
}

static void *make(void *argument) {
  const struct work *work = argument;
  uint64_t ids[BATCH];
  for (size_t made = 0; made < work->count;) {
    size_t many = work->count - made < BATCH ? work->count - made : BATCH;
    /* One at a time is `cosid_next`; a batch costs less for each. */
    if (many == 1 ? cosid_next(work->generator, TIMEOUT_MS, ids)
                  : cosid_next_batch(work->generator, TIMEOUT_MS, ids, many))
      fail("make IDs");
    for (size_t i = 0; i < many; i++)
      printf("%" PRIu64 "\n", ids[i]);
    made += many;
  }
  return NULL;
}

int main(int argc, char **argv) {
  long threads = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
  long count = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
  if (threads < 1 || threads > MOST_THREADS || count < 1) {
    fprintf(stderr, "usage: ids GENERATOR THREADS COUNT\n");
    return 64;
  }

  cosid_client *client;
  cosid_generator *generator;
  if (cosid_open(NULL, &client)) /* NULL: the socket that COSID_SOCKET names */
    fail("open the client");
  if (cosid_generator_open(client, argv[1], &generator))
    fail("open the generator");

  cosid_lease_info lease;
  if (cosid_lease(client, &lease))
    fail("ask for the lease");
  fprintf(stderr, "slot %" PRIu32 " of %s\n", lease.slot, lease.pool);

  pthread_t running[MOST_THREADS];
  struct work work = {generator, (size_t)count};
  for (long i = 0; i < threads; i++)
    if (pthread_create(&running[i], NULL, make, &work)) {
      fprintf(stderr, "cannot start a thread\n");
      return 1;
    }
  for (long i = 0; i < threads; i++)
    pthread_join(running[i], NULL);

  cosid_generator_close(generator);
  cosid_close(client);
  return fflush(stdout) ? 1 : 0;
}
