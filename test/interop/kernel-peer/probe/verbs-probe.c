/*
 * One RDMA connection through the kernel's verbs, for cases that no ready-made tool provokes: a rejecting
 * listener, private data, work requests that the peer must answer with a Terminate. Each thing that
 * happens is one line on standard output:
 *
 *   memory stag=0x12345600 to=0x7f0000000000 length=65536
 *   cm EVENT status=N private=HEX responder=N initiator=N
 *   async EVENT
 *   posted N KIND
 *   done N STATUS               a work request, counted from 0
 *   received N STATUS length=N  a receive, counted from 0; then invalidated=0x... where it holds
 *
 * usage: verbs-probe listen|connect ADDRESS PORT [OPTION=VALUE | WORK]...
 *
 *   private=HEX    private data of the request, the accept or the reject; the default of an accept
 *                  is where the memory is: STag (4 bytes), TO (8), length (4), big-endian
 *   reject=1       refuse the connection
 *   from=ADDRESS   the connecting side's own address
 *   ird=N ord=N    inbound and outbound reads (4)
 *   receives=N     receives to post (8), each of `room=N` bytes (4096)
 *   memory=N       bytes of registered memory (65536), byte i of it is i modulo 251
 *   access=rw      what the peer may do with it, any of r and w, or -
 *   linger=MS      how long the connecting side stays after its last completion (300)
 *
 * WORK is KIND:LENGTH[@STAG[+TO]] with the KIND send, solicited, invalidate, write or read; STAG and
 * TO name the peer's memory and default to its private data. Work requests are posted one
 * after the other, each when the one before has completed. A STAG of `bad` is an unknown one.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <rdma/rdma_cma.h>

#define PATIENCE_MS 10000
#define WORK_MAX 64
#define RECEIVE_ID 1000

struct memory_place {
	uint32_t stag;
	uint64_t to;
	uint32_t length;
} __attribute__((packed));

static bool reject;
static struct sockaddr_in source;
static int ird = 4, ord = 4, receives = 8, room = 4096, memory_length = 65536, linger_ms = 300;
static int access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
static uint8_t private_bytes[512];
static int private_length = -1;
static char *works[WORK_MAX];
static int work_count;

static struct rdma_event_channel *channel;
static struct ibv_mr *memory;
static struct ibv_cq *cq;
static struct memory_place peer;
static int completed;
static bool established, finished;
static struct rdma_cm_id *connection;

static void fail(const char *what)
{
	printf("failed %s: %m\n", what);
	exit(1);
}

static void bad_usage(const char *word)
{
	fprintf(stderr, "verbs-probe: do not know %s\n", word);
	exit(2);
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void parse_option(char *word)
{
	char *value = strchr(word, '=');
	const struct { const char *name; int *target; } numbers[] = {
		{ "ird", &ird }, { "ord", &ord }, { "receives", &receives }, { "room", &room },
		{ "memory", &memory_length }, { "linger", &linger_ms },
	};

	if (!value) {
		if (!strchr(word, ':') || work_count == WORK_MAX)
			bad_usage(word);
		works[work_count++] = word;
		return;
	}
	*value++ = 0;
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		if (!strcmp(word, numbers[i].name)) {
			*numbers[i].target = atoi(value);
			return;
		}
	}
	if (!strcmp(word, "reject")) {
		reject = atoi(value);
	} else if (!strcmp(word, "from")) {
		source.sin_family = AF_INET;
		if (!inet_pton(AF_INET, value, &source.sin_addr))
			bad_usage(value);
	} else if (!strcmp(word, "private")) {
		for (private_length = 0; value[0] && value[1]; value += 2)
			if (private_length == sizeof(private_bytes) ||
			    sscanf(value, "%2hhx", &private_bytes[private_length++]) != 1)
				bad_usage(value);
	} else if (!strcmp(word, "access")) {
		access_flags = IBV_ACCESS_LOCAL_WRITE;
		access_flags |= strchr(value, 'r') ? IBV_ACCESS_REMOTE_READ : 0;
		access_flags |= strchr(value, 'w') ? IBV_ACCESS_REMOTE_WRITE : 0;
	} else {
		bad_usage(word);
	}
}

static struct ibv_mr *new_memory(struct ibv_pd *pd, size_t length, int flags)
{
	uint8_t *bytes;
	struct ibv_mr *mr;

	if (posix_memalign((void **)&bytes, 4096, length + 1))
		fail("memory");
	for (size_t i = 0; i < length; i++)
		bytes[i] = i % 251;
	mr = ibv_reg_mr(pd, bytes, length, flags);
	if (!mr)
		fail("ibv_reg_mr");
	return mr;
}

static void create_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = WORK_MAX, .max_recv_wr = receives + 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};
	struct ibv_mr *buffers;

	if (!pd)
		fail("ibv_alloc_pd");
	cq = ibv_create_cq(id->verbs, WORK_MAX + receives + 1, NULL, NULL, 0);
	if (!cq)
		fail("ibv_create_cq");
	attributes.send_cq = attributes.recv_cq = cq;
	if (rdma_create_qp(id, pd, &attributes))
		fail("rdma_create_qp");
	memory = new_memory(pd, memory_length, access_flags);
	buffers = new_memory(pd, (size_t)receives * room, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < receives; i++) {
		struct ibv_sge sge = { (uintptr_t)buffers->addr + (size_t)i * room, room, buffers->lkey };
		struct ibv_recv_wr wr = { .wr_id = RECEIVE_ID + i, .sg_list = &sge, .num_sge = 1 };
		struct ibv_recv_wr *bad;

		if (ibv_post_recv(id->qp, &wr, &bad))
			fail("ibv_post_recv");
	}
	printf("memory stag=0x%08x to=0x%llx length=%d\n", memory->rkey,
	       (unsigned long long)(uintptr_t)memory->addr, memory_length);
	if (fcntl(id->verbs->async_fd, F_SETFL, O_NONBLOCK))
		fail("fcntl");
	connection = id;
}

static struct rdma_conn_param connection_parameters(void)
{
	return (struct rdma_conn_param){
		.private_data = private_bytes,
		.private_data_len = private_length < 0 ? 0 : private_length,
		.responder_resources = ird,
		.initiator_depth = ord,
	};
}

static void answer(struct rdma_cm_id *id)
{
	struct rdma_conn_param parameters;
	struct memory_place place;

	if (reject) {
		if (rdma_reject(id, private_bytes, private_length < 0 ? 0 : private_length))
			fail("rdma_reject");
		finished = true;
		return;
	}
	create_queue_pair(id);
	place = (struct memory_place){ htobe32(memory->rkey), htobe64((uintptr_t)memory->addr),
				       htobe32(memory_length) };
	if (private_length < 0) {
		memcpy(private_bytes, &place, sizeof(place));
		private_length = sizeof(place);
	}
	parameters = connection_parameters();
	if (rdma_accept(id, &parameters))
		fail("rdma_accept");
}

static void handle_cm_event(void)
{
	struct rdma_conn_param parameters;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;

	if (rdma_get_cm_event(channel, &event))
		fail("rdma_get_cm_event");
	id = event->id;
	type = event->event;
	printf("cm %s status=%d private=", rdma_event_str(type), event->status);
	for (int i = 0; i < event->param.conn.private_data_len; i++)
		printf("%02x", ((const uint8_t *)event->param.conn.private_data)[i]);
	printf(" responder=%d initiator=%d\n", event->param.conn.responder_resources,
	       event->param.conn.initiator_depth);
	if (type == RDMA_CM_EVENT_ESTABLISHED && event->param.conn.private_data_len >= sizeof(peer))
		memcpy(&peer, event->param.conn.private_data, sizeof(peer));
	rdma_ack_cm_event(event);

	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(id, PATIENCE_MS))
			fail("rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		create_queue_pair(id);
		parameters = connection_parameters();
		if (rdma_connect(id, &parameters))
			fail("rdma_connect");
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		answer(id);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established = true;
		break;
	default:
		finished = true;
	}
}

static void handle_async_event(void)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(connection->verbs, &event))
		return;
	printf("async %s\n", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
}

static void handle_completions(void)
{
	struct ibv_wc wc;

	while (cq && ibv_poll_cq(cq, 1, &wc) > 0) {
		if (wc.wr_id < RECEIVE_ID) {
			printf("done %d %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
			completed++;
			continue;
		}
		printf("received %d %s length=%u", (int)wc.wr_id - RECEIVE_ID,
		       ibv_wc_status_str(wc.status), wc.status ? 0 : wc.byte_len);
		if (!wc.status && wc.wc_flags & IBV_WC_WITH_INV)
			printf(" invalidated=0x%08x", wc.invalidated_rkey);
		puts("");
	}
}

static void wait_for_anything(int ms)
{
	struct pollfd fds[2] = {
		{ .fd = channel->fd, .events = POLLIN },
		{ .fd = connection ? connection->verbs->async_fd : -1, .events = POLLIN },
	};

	if (poll(fds, 2, ms) < 0)
		fail("poll");
	handle_completions();
	if (fds[1].revents)
		handle_async_event();
	if (fds[0].revents)
		handle_cm_event();
}

static void post_work(int index)
{
	static const struct { const char *name; enum ibv_wr_opcode opcode; int flags; } kinds[] = {
		{ "send", IBV_WR_SEND, 0 },
		{ "solicited", IBV_WR_SEND, IBV_SEND_SOLICITED },
		{ "invalidate", IBV_WR_SEND_WITH_INV, 0 },
		{ "write", IBV_WR_RDMA_WRITE, 0 },
		{ "read", IBV_WR_RDMA_READ, 0 },
	};
	struct ibv_sge sge = { (uintptr_t)memory->addr, 0, memory->lkey };
	struct ibv_send_wr wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 }, *bad;
	uint32_t stag = be32toh(peer.stag);
	uint64_t to = be64toh(peer.to);
	char *length = strchr(works[index], ':'), *place = strchr(works[index], '@'), *offset;
	unsigned kind = 0;

	*length++ = 0;
	while (strcmp(kinds[kind].name, works[index]))
		if (++kind == sizeof(kinds) / sizeof(*kinds))
			bad_usage(works[index]);
	if (place) {
		*place++ = 0;
		offset = strchr(place, '+');
		stag = strncmp(place, "bad", 3) ? strtoul(place, NULL, 0) : stag ^ 0x5a5a00;
		to = offset ? strtoull(offset + 1, NULL, 0) : to;
	}
	sge.length = strtoul(length, NULL, 0);
	wr.opcode = kinds[kind].opcode;
	wr.send_flags = kinds[kind].flags;
	wr.wr.rdma.remote_addr = to;
	/* Also for a send: libsiw takes the STag to invalidate from here. */
	wr.wr.rdma.rkey = stag;
	if (wr.opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = stag;
	printf("posted %d %s\n", index, works[index]);
	if (ibv_post_send(connection->qp, &wr, &bad))
		fail("ibv_post_send");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct rdma_cm_id *id;
	bool listening;
	long until;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4 || !inet_pton(AF_INET, argv[2], &address.sin_addr))
		bad_usage("these arguments; see the head of verbs-probe.c");
	listening = !strcmp(argv[1], "listen");
	address.sin_port = htons(atoi(argv[3]));
	for (int i = 4; i < argc; i++)
		parse_option(argv[i]);

	channel = rdma_create_event_channel();
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		fail("rdma_create_id");
	if (listening) {
		if (rdma_bind_addr(id, (struct sockaddr *)&address) || rdma_listen(id, 1))
			fail("rdma_listen");
		while (!connection && !finished)
			wait_for_anything(-1);
	} else {
		struct sockaddr *from = source.sin_family ? (struct sockaddr *)&source : NULL;

		if (rdma_resolve_addr(id, from, (struct sockaddr *)&address, PATIENCE_MS))
			fail("rdma_resolve_addr");
	}

	for (until = now_ms() + PATIENCE_MS; !established && !finished && now_ms() < until;)
		wait_for_anything(20);
	for (int i = 0; i < work_count && !finished; i++) {
		post_work(i);
		for (until = now_ms() + PATIENCE_MS; completed <= i && !finished && now_ms() < until;)
			wait_for_anything(5);
	}
	/* The connecting side ends the connection; the listening side waits for that. */
	for (until = now_ms() + (listening ? 3 * PATIENCE_MS : linger_ms); !finished && now_ms() < until;)
		wait_for_anything(20);
	if (connection && established)
		rdma_disconnect(connection);
	for (until = now_ms() + 300; now_ms() < until;)
		wait_for_anything(20);
	return established || reject ? 0 : 1;
}
