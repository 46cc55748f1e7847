/* The bytes between the shim and the daemon: the greeting of
 * daemon/contract/protocol/ipc-frames.ts and the commands of the kernel personality. All numbers
 * are little endian, as on every machine this builds for. */
#ifndef IWARPD_PROTOCOL_H
#define IWARPD_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the protocol is copied as it lies in memory, which takes a little-endian machine"
#endif
_Static_assert(sizeof(void *) == 8, "the kernel ABI served here is the 64-bit one");

#define IPC_MAGIC 0x64727769u
#define IPC_VERSION 5
#define TOKEN_BYTES 16

enum frame_type { FRAME_HELLO = 1, FRAME_WELCOME = 2 };

/* The purpose of a connection. */
enum role { ROLE_AGENT = 5, ROLE_UVERBS = 7, ROLE_CM = 8, ROLE_NETLINK = 9, ROLE_EVENT = 10 };

struct frame_header {
  uint32_t payload_bytes;
  uint8_t type;
  uint8_t zero[3];
  uint32_t request_id;
};
_Static_assert(sizeof(struct frame_header) == 12, "frame header");

struct hello {
  struct frame_header frame;
  uint32_t magic;
  uint16_t version;
  uint8_t role;
  uint8_t zero;
  uint8_t token[TOKEN_BYTES];
};
_Static_assert(sizeof(struct hello) == 12 + 24, "hello");

/* Without the text that follows. */
struct welcome_head {
  uint32_t magic;
  uint16_t version;
  uint16_t zero;
  uint32_t error;
  uint32_t pid;
  uint8_t token[TOKEN_BYTES];
};
_Static_assert(sizeof(struct welcome_head) == 32, "welcome");

/* Longest text of a welcome that the shim accepts, in bytes. */
#define WELCOME_TEXT_MAX 1024

enum operation {
  OP_WRITE = 1,
  OP_RINGS = 2,
  OP_POP = 3,
  OP_NETLINK = 5,
  OP_DOORBELL = 6,
  OP_CHILD = 7,
  OP_ARM = 8,
  OP_CONNECT = 9,
  OP_MOVE = 10,
  OP_EXPLAIN = 11,
  OP_COPIES = 12,
};

/* The argument of OP_ARM: a handle below this limit, and how many completions the program could
 * see. */
#define ARM_HANDLES (1u << 20)
#define ARM_SEEN_SHIFT 20u

/* Of a doorbell or an arming: send no reply. */
#define REQUEST_ONE_WAY 1u
/* Replies may end with reasons. */
#define REQUEST_EXPLAIN 2u

struct request_head {
  uint32_t length_bytes;
  uint16_t operation;
  uint16_t flags;
  uint32_t pid;
  uint32_t request_id;
  uint64_t argument;
};
_Static_assert(sizeof(struct request_head) == 24, "request");
_Static_assert(offsetof(struct request_head, argument) == 16, "request");

/* Maximum payload of a request, in bytes. */
#define REQUEST_PAYLOAD_MAX (16u * 1024)

/* Take one byte from the descriptor of the queue that this command read. */
#define REPLY_TAKE_BYTE 1u
/* This command removed records: a list of queues follows the descriptors; take a byte from each. */
#define REPLY_PURGED 2u
/* Start the memory agent, then repeat the command. */
#define REPLY_START_AGENT 4u
/* The reply ends with reasons: their bytes, and lines for the program's standard error. */
#define REPLY_REASONS 8u
/* Start the memory agent if that is possible; the command is done in any case. */
#define REPLY_OFFER_AGENT 16u
/* Not the reply yet, which takes long: the daemon is still there. */
#define REPLY_LATER 32u

struct reply_head {
  uint32_t length_bytes;
  int32_t status;
  uint32_t request_id;
  uint32_t flags;
  uint32_t response_bytes;
  uint32_t descriptor_count;
};
_Static_assert(sizeof(struct reply_head) == 24, "reply");

/* Status of a reply to OP_NETLINK: more datagrams follow; request them without a message. */
#define NETLINK_MORE_FOLLOWS 1

/* An event descriptor to open, and the offset of its number in the response. */
struct reply_descriptor {
  uint32_t offset;
  uint8_t token[TOKEN_BYTES];
};
_Static_assert(sizeof(struct reply_descriptor) == 20, "descriptor of a reply");

/* Longest reply that the shim accepts, in bytes with its head. */
#define REPLY_MAX (64u * 1024)
/* Maximum number of descriptors and purged queues in a reply. No kernel command has more than
 * two. */
#define REPLY_DESCRIPTORS_MAX 4u
#define REPLY_PURGED_MAX 64u

enum agent_operation { AGENT_READ = 1, AGENT_WRITE = 2, AGENT_COPY = 3 };

struct agent_request {
  uint32_t operation;
  uint32_t id;
  uint64_t address;
  uint32_t length;
  uint32_t zero;
};
_Static_assert(sizeof(struct agent_request) == 24, "agent request");

struct agent_reply {
  uint32_t id;
  uint32_t error;
  uint32_t length;
  uint32_t zero;
};
_Static_assert(sizeof(struct agent_reply) == 16, "agent reply");

/* Maximum transfer of one agent request, in bytes. */
#define AGENT_TRANSFER_MAX (256u * 1024)

/* The id of a message of the agent that answers no request: it has carried out orders. */
#define AGENT_COPIED_ID 0xffffffffu

/* Orders to copy memory of this process into another one: daemon/clients/objects/copy-ring.ts. */
enum copy_state {
  COPY_FREE = 0,
  COPY_POSTED = 1,
  COPY_STARTED = 2,
  COPY_CANCELLED = 3,
  COPY_DONE = 4,
};

#define COPY_ORDERS 64u
/* Longest copy of one order, in bytes. */
#define COPY_BYTES_MAX (64u * 1024)

struct copy_order {
  uint32_t state;
  int32_t error;
  uint64_t source;
  uint64_t target;
  uint32_t length;
  uint32_t process;
  uint8_t unused[32];
};
_Static_assert(sizeof(struct copy_order) == 64, "an order has its own cache line");

struct copy_ring {
  /* 1 once an agent serves the ring. */
  uint32_t served;
  /* 1 while the agent waits for a message. */
  uint32_t idle;
  /* Of the agent. */
  uint32_t thread;
  uint8_t unused[52];
  /* 1 if the daemon wants a message when an order is done. */
  uint32_t awaited;
  uint8_t more_unused[60];
  struct copy_order orders[COPY_ORDERS];
};
_Static_assert(sizeof(struct copy_ring) == 128 + 64 * COPY_ORDERS, "copy ring");

#endif
