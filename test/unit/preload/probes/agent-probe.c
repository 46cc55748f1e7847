/* A daemon that copies unreachable memory through the agent, and one that asks for more
 * than the program registered. */
#include "probe.h"

#define REG_MR 9u
#define DEREG_MR 13u
#define LOCAL_WRITE 1u

/* The registration's protection domain selects the played daemon's reply: from 1000 on, it is the
 * handle in the reply. */
enum { PD_PLAIN = 0, PD_REFUSED = 77, PD_USED_AT_ONCE = 88, PD_FIRST_HANDLE = 1000 };

enum { READ = 1, WRITE = 2 };

struct registration {
  uint32_t handle;
  /* The agent's errno for a copy that was asked for while the registration was under way. */
  uint32_t used;
  uint32_t rkey;
};

static int try_register(int fd, const void *memory, uint64_t length, uint32_t access, uint32_t pd,
                        struct registration *made) {
  uint64_t start = (uint64_t)(uintptr_t)memory;
  uint32_t words[10] = {(uint32_t)start, (uint32_t)(start >> 32), (uint32_t)length,
                        (uint32_t)(length >> 32), (uint32_t)start, (uint32_t)(start >> 32),
                        pd, access, 0, 0};
  return (int)command(fd, REG_MR, made, sizeof *made, words, 10);
}

static uint32_t reg_mr(int fd, const void *memory, uint64_t length, uint32_t access, uint32_t pd) {
  struct registration made;
  CHECK(try_register(fd, memory, length, access, pd, &made) == 0);
  return made.handle;
}

/* The request has no room for a response: the handle is right after its header. */
static void dereg_mr(int fd, uint32_t handle) {
  struct {
    uint32_t number;
    uint16_t in_words;
    uint16_t out_words;
    uint32_t handle;
  } request = {DEREG_MR, 3, 0, handle};
  CHECK(write(fd, &request, sizeof request) == sizeof request);
}

/* Makes the daemon copy; returns the agent's errno. `sum` gets the sum of the bytes read. */
static uint32_t copy(int fd, uint32_t operation, const void *memory, uint32_t length, uint32_t fill,
                     uint32_t *sum) {
  uint64_t address = (uint64_t)(uintptr_t)memory;
  uint32_t response[2] = {~0u, ~0u};
  uint32_t words[5] = {operation, length, (uint32_t)address, (uint32_t)(address >> 32), fill};
  CHECK(command(fd, TELL_AGENT_COPY, response, sizeof response, words, 5) == 0);
  if (sum != NULL) *sum = response[1];
  return response[0];
}

static int open_with_agent(void) {
  int fd = open_device();
  CHECK(tell(fd, TELL_AGENT, 0, 0, 0, 0) == 0);
  return fd;
}

static void copies(void) {
  int fd = open_with_agent();
  char *memory = map_pages(3);
  uint32_t sum;
  reg_mr(fd, memory, 3 * 4096, LOCAL_WRITE, PD_PLAIN);
  CHECK(mprotect(memory + 8192, 4096, PROT_NONE) == 0);
  memset(memory, 3, 8192);
  CHECK(copy(fd, READ, memory + 1, 8000, 0, &sum) == 0 && sum == 3 * 8000);
  CHECK(copy(fd, WRITE, memory + 1, 8000, 9, NULL) == 0);
  CHECK(memory[0] == 3 && memory[1] == 9 && memory[8000] == 9 && memory[8001] == 3);
  /* Registered but no longer accessible, in both directions; the agent survives. */
  CHECK(copy(fd, READ, memory + 1, 9000, 0, NULL) == EFAULT);
  CHECK(copy(fd, WRITE, memory + 1, 9000, 9, NULL) == EFAULT);
  CHECK(mprotect(memory, 4096, PROT_READ) == 0);
  CHECK(copy(fd, WRITE, memory + 1, 10, 9, NULL) == EFAULT);
  CHECK(copy(fd, READ, memory + 1, 10, 0, &sum) == 0 && sum == 9 * 10);
  CHECK(close(fd) == 0);
  /* The agent ends with the last device. */
  CHECK(count_descriptors() == initial_descriptors);
}

/* A program that no longer finds the daemon's socket, for example in another root directory. */
static void out_of_reach(void) {
  int fd = open_device();
  get_context(fd);
  CHECK(unlink(getenv("IWARPD_SOCKET")) == 0);
  CHECK_FAILS(ENOENT, open("/dev/infiniband/uverbs0", O_RDWR));
  CHECK(tell(fd, TELL_AGENT, 0, 0, 0, 0) == 0);
  char *memory = map_pages(1);
  uint32_t sum;
  memory[0] = 4;
  reg_mr(fd, memory, 4096, LOCAL_WRITE, PD_PLAIN);
  CHECK(copy(fd, READ, memory, 1, 0, &sum) == 0 && sum == 4);
  int channel = create_channel(fd);
  push(fd, 1, 1, 21);
  CHECK(read_completion(channel) == 21);
}

/* Neither reads nor writes are granted, and the memory is unchanged. */
static void check_closed(int fd, char *memory, uint32_t length) {
  char before[64];
  CHECK(length <= sizeof before);
  memcpy(before, memory, length);
  CHECK(copy(fd, READ, memory, length, 0, NULL) == EFAULT);
  CHECK(copy(fd, WRITE, memory, length, 0xee, NULL) == EFAULT);
  CHECK(memcmp(before, memory, length) == 0);
}

static void confined(void) {
  static char secret[64] = "in the program's data";
  char on_stack[64] = "on its stack";
  int fd = open_with_agent();
  char *memory = map_pages(2);
  memset(memory, 5, 8192);
  check_closed(fd, memory, 16);
  uint32_t handle = reg_mr(fd, memory + 64, 128, LOCAL_WRITE, PD_PLAIN);
  /* Ranges beside the registration, across its ends, or wrapping around, are refused. */
  check_closed(fd, secret, sizeof secret);
  check_closed(fd, on_stack, sizeof on_stack);
  check_closed(fd, memory + 63, 2);
  check_closed(fd, memory + 191, 2);
  check_closed(fd, memory + 192, 1);
  CHECK(copy(fd, READ, (void *)(uintptr_t)-8, 64, 0, NULL) == EFAULT);
  CHECK(copy(fd, READ, memory + 64, 128, 0, NULL) == 0);
  CHECK(copy(fd, WRITE, memory + 191, 1, 7, NULL) == 0 && memory[191] == 7);
  /* Adjacent registrations stay separate, as on a real adapter. */
  uint32_t next = reg_mr(fd, memory + 192, 64, LOCAL_WRITE, PD_PLAIN);
  check_closed(fd, memory + 190, 4);
  dereg_mr(fd, handle);
  check_closed(fd, memory + 64, 16);
  CHECK(copy(fd, READ, memory + 192, 64, 0, NULL) == 0);
  dereg_mr(fd, next);
  check_closed(fd, memory + 192, 16);
  CHECK(close(fd) == 0);
}

static void read_only(void) {
  int fd = open_with_agent();
  char *memory = map_pages(1);
  memset(memory, 5, 64);
  reg_mr(fd, memory, 64, 0, PD_PLAIN);
  CHECK(copy(fd, READ, memory, 64, 0, NULL) == 0);
  CHECK(copy(fd, WRITE, memory, 64, 9, NULL) == EFAULT);
  CHECK(memory[0] == 5);
}

/* Access during a registration, after a refused one, and after one that names no memory. */
static void starting(void) {
  int fd = open_with_agent();
  char *memory = map_pages(1);
  struct registration made = {.used = ~0u};
  CHECK(try_register(fd, memory, 64, LOCAL_WRITE, PD_USED_AT_ONCE, &made) == 0);
  CHECK(made.used == 0);
  CHECK_FAILS(ENOMEM, try_register(fd, memory + 1024, 64, LOCAL_WRITE, PD_REFUSED, &made));
  check_closed(fd, memory + 1024, 16);
  /* A length beyond the last address, and a length of 0. */
  reg_mr(fd, memory + 2048, ~0ull, LOCAL_WRITE, PD_PLAIN);
  reg_mr(fd, memory + 2048, 0, LOCAL_WRITE, PD_PLAIN);
  check_closed(fd, memory + 2048, 16);
}

/* Handles of a daemon that lies: they never open more than was registered. */
static void lying_handles(void) {
  int fd = open_with_agent();
  char *memory = map_pages(4);
  CHECK(reg_mr(fd, memory, 64, LOCAL_WRITE, PD_FIRST_HANDLE) == PD_FIRST_HANDLE);
  CHECK(copy(fd, READ, memory, 64, 0, NULL) == 0);
  /* A second region with the same handle ends the first one. */
  CHECK(reg_mr(fd, memory + 4096, 64, LOCAL_WRITE, PD_FIRST_HANDLE) == PD_FIRST_HANDLE);
  check_closed(fd, memory, 16);
  CHECK(copy(fd, READ, memory + 4096, 64, 0, NULL) == 0);
  /* A handle beyond all bounds grants nothing, and costs nothing. */
  CHECK(reg_mr(fd, memory + 8192, 64, LOCAL_WRITE, ~0u) == ~0u);
  check_closed(fd, memory + 8192, 16);
  dereg_mr(fd, ~0u);
  dereg_mr(fd, PD_FIRST_HANDLE);
  check_closed(fd, memory + 4096, 16);
}

/* A child has registered nothing, and its parent's registrations stay its parent's. */
static void forked(void) {
  int fd = open_with_agent();
  char *memory = map_pages(1);
  memset(memory, 5, 4096);
  reg_mr(fd, memory, 64, LOCAL_WRITE, PD_PLAIN);
  pid_t child = fork();
  if (child == 0) {
    CHECK(tell(fd, TELL_AGENT, 1, 0, 0, 0) == 0);
    check_closed(fd, memory, 16);
    reg_mr(fd, memory + 1024, 64, LOCAL_WRITE, PD_PLAIN);
    CHECK(copy(fd, WRITE, memory + 1024, 64, 8, NULL) == 0 && memory[1024] == 8);
    _exit(0);
  }
  check_child(child);
  CHECK(memory[1024] == 5);
}

/* A file's registrations end with it, while another one's stay. */
static void closed(void) {
  int fd = open_with_agent();
  int other = open_device();
  char *memory = map_pages(2);
  reg_mr(fd, memory, 64, LOCAL_WRITE, PD_PLAIN);
  reg_mr(other, memory + 4096, 64, LOCAL_WRITE, PD_PLAIN);
  CHECK(copy(other, READ, memory, 64, 0, NULL) == 0);
  CHECK(close(fd) == 0);
  check_closed(other, memory, 16);
  CHECK(copy(other, READ, memory + 4096, 64, 0, NULL) == 0);
}

/* Many registrations: each is found, and ended ones are not. */
static void many(void) {
  enum { COUNT = 1000 };
  int fd = open_with_agent();
  char *memory = map_pages(COUNT / 64 + 1);
  uint32_t handles[COUNT];
  for (int index = 0; index < COUNT; index++) {
    handles[index] = reg_mr(fd, memory + 64 * index, 32, LOCAL_WRITE, PD_PLAIN);
  }
  for (int index = 0; index < COUNT; index += 2) dereg_mr(fd, handles[index]);
  for (int index = 0; index < COUNT; index += 37) {
    uint32_t expected = index % 2 == 0 ? EFAULT : 0;
    CHECK(copy(fd, READ, memory + 64 * index, 32, 0, NULL) == expected);
    check_closed(fd, memory + 64 * index + 32, 1);
  }
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      {"copies", copies}, {"out-of-reach", out_of_reach}, {"confined", confined},
      {"read-only", read_only}, {"starting", starting}, {"lying-handles", lying_handles},
      {"forked", forked}, {"closed", closed}, {"many", many}, {NULL, NULL}};
  return run_scenario(argc, argv, scenarios);
}
