/* A program that uses the preload library in every way at once, through the real libibverbs and
 * librdmacm. Every wait has a limit, so it exits whatever happens to the daemon. */
#ifndef STRESS_H
#define STRESS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* No wait takes longer, even on a busy machine and under a sanitizer. The daemon's death ends
 * every wait. */
#define WAIT_LIMIT_MS 30000

/* Set when the time is over, or the daemon is gone. */
extern atomic_bool stopping;
/* Set when only the listener is left. */
extern atomic_bool closing;

/* A call failed. Ends the program unless its daemon is meant to die; then everything stops. */
void failed(const char *file, int line, const char *what);

/* False after a failure that the daemon's end explains. */
#define EXPECT(condition) ((condition) || (failed(__FILE__, __LINE__, #condition), false))

/* Ends the program if false, which not even the daemon's death would explain. */
#define REQUIRE(condition)                                                                         \
  ((condition) ? (void)0 : wrong(__FILE__, __LINE__, #condition))
_Noreturn void wrong(const char *file, int line, const char *what);

/* Numbers from the seed; each thread has its own sequence. */
struct chance {
  uint64_t state;
};
struct chance chance_of(uint64_t seed, unsigned thread);
unsigned below(struct chance *chance, unsigned bound);

int64_t now_ms(void);

/* How often each thing was done, printed at the end: a stress that did nothing proves nothing. */
struct tally {
  atomic_uint connections, messages, devices, forks, executions, moves, ranges, duplicates, events;
};
extern struct tally tally;

/* Functions of threads. The argument of each is its own `struct chance *`. */
void *serve(void *chance);
void *converse(void *chance);
void *open_and_close(void *chance);
void *spawn_processes(void *chance);
void *take_numbers(void *chance);
void *watch_events(void *chance);

/* The port that `serve` listens on; 0 before. */
extern atomic_int listening_port;

/* A device that stays open. */
extern struct ibv_context *standing;

/* The first device, opened again, or NULL. */
struct ibv_context *open_first(void);

#endif
