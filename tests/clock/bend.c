/* A wall clock that a test bends: what the C library says it is, plus as many nanoseconds as the file BENT_CLOCK holds.
   Preloaded into a program by LD_PRELOAD; the monotonic clocks are left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *bend;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("BENT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *bend, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) bend = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && bend && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t whole = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *bend;
        now->tv_sec = whole / 1000000000;
        now->tv_nsec = whole % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec fine;
    int result = clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return result;
}

time_t time(time_t *to) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (to) *to = fine.tv_sec;
    return fine.tv_sec;
}
