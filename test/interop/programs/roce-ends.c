/*
 * Two ends of RoCE queue pairs, each on its own device, that verify every byte. They exchange
 * parameters over TCP, take turns as requester, and print a line for each shape once both have
 * received everything as sent.
 *
 * usage: roce-ends DEVICE GID_INDEX PORT [HOST [reliable]]
 *
 * Without HOST, it is the end that listens. `reliable`, at the other end, selects only shapes of
 * RC, which lose nothing on a lossy wire.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define QKEY 0x2468ace
#define GRH_BYTES 40
#define MESSAGE_MAX 20000
#define RECEIVES 24
#define PATIENCE_SECONDS 150

/* Parameters that one end sends to the other. */
struct place {
	uint32_t qpn, psn, rkey, mtu;
	uint64_t addr;
	union ibv_gid gid;
};

/* Memory of either end: for sends, for the peer's writes and reads, and for receives. */
struct memory {
	uint8_t out[MESSAGE_MAX];
	uint8_t in[MESSAGE_MAX];
	uint8_t source[MESSAGE_MAX];
	uint64_t counter __attribute__((aligned(8)));
	uint64_t result;
	uint8_t receives[RECEIVES][MESSAGE_MAX + GRH_BYTES];
};

static const uint32_t lengths[] = { 0, 1, 5, 255, 256, 257, 1023, 4096, 4099, 19999 };
#define LENGTHS (sizeof(lengths) / sizeof(*lengths))

static int control, gid_index, asks_first;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct memory *memory;
static struct ibv_qp *qp;
static struct ibv_ah *ah;
static struct place peer;
static enum ibv_qp_type type;
static const char *shape;

static void fail(const char *what, int which)
{
	fprintf(stderr, "%s: %s, %d\n", shape, what, which);
	exit(1);
}

static void check(int good, const char *what, int which)
{
	if (!good)
		fail(what, which);
}

/* Byte `i` of message `k` from the requester (`asking` is 1) or the other end. */
static uint8_t pattern(int k, uint32_t i, int asking)
{
	return (uint8_t)(k * 37 + i * 11 + (i >> 8) * 3 + asking * 101 + 1);
}

static void fill(uint8_t *bytes, uint32_t length, int k, int asking)
{
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = pattern(k, i, asking);
}

static void verify(const uint8_t *bytes, uint32_t length, int k, int asking, const char *what)
{
	for (uint32_t i = 0; i < length; i++)
		if (bytes[i] != pattern(k, i, asking))
			fail(what, (int)i);
}

static void send_bytes(const void *bytes, size_t length)
{
	check(write(control, bytes, length) == (ssize_t)length, "the other end is gone", 0);
}

static void receive_bytes(void *bytes, size_t length)
{
	for (size_t had = 0; had < length;) {
		ssize_t count = read(control, (char *)bytes + had, length - had);

		check(count > 0, "the other end has ended", 0);
		had += count;
	}
}

/* A barrier for both ends. */
static void meet(void)
{
	char byte = 0;

	send_bytes(&byte, 1);
	receive_bytes(&byte, 1);
}

/* The next completion, which must be successful. */
static struct ibv_wc complete(void)
{
	struct ibv_wc wc;
	struct ibv_cq *notified;
	void *unused;
	int count;

	/* Where nothing is found, it asks for an event, looks again, and sleeps until the event. */
	for (int armed = 0; (count = ibv_poll_cq(cq, 1, &wc)) == 0; armed = !armed) {
		if (!armed) {
			check(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq", 0);
			continue;
		}
		check(ibv_get_cq_event(channel, &notified, &unused) == 0, "ibv_get_cq_event", 0);
		ibv_ack_cq_events(notified, 1);
	}
	check(count == 1, "ibv_poll_cq", count);
	check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status), (int)wc.wr_id);
	return wc;
}

static void receive(int index)
{
	uint32_t length = type == IBV_QPT_UD ? 4096 + GRH_BYTES : MESSAGE_MAX;
	struct ibv_sge sge = { (uintptr_t)memory->receives[index], length, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1000 + index, .sg_list = &sge, .num_sge = 1 }, *bad;

	memset(memory->receives[index], 0xee, sizeof(memory->receives[index]));
	check(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv", index);
}

/* Posts a request for `length` bytes at `local`. */
static void post(enum ibv_wr_opcode opcode, void *local, uint32_t length, size_t remote, int k)
{
	struct ibv_sge sge = { (uintptr_t)local, length, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = k, .opcode = opcode, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(0xa0000000 + k),
	}, *bad;

	if (type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = peer.qpn;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = peer.addr + remote;
		wr.wr.atomic.rkey = peer.rkey;
		wr.wr.atomic.compare_add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 3 : (uint64_t)k;
		wr.wr.atomic.swap = k + 1;
	} else {
		wr.wr.rdma.remote_addr = peer.addr + remote;
		wr.wr.rdma.rkey = peer.rkey;
	}
	check(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send", k);
}

/* Sends of various lengths, many at once, with and without immediate data. */
static void sends(int asking)
{
	int count = type == IBV_QPT_RC ? RECEIVES : 4;
	uint32_t max = type == IBV_QPT_UD ? 1024 : MESSAGE_MAX;

	for (int k = 0; !asking && k < count; k++)
		receive(k);
	meet();
	for (int k = 0; k < count; k++) {
		uint32_t length = lengths[k % LENGTHS] > max ? max : lengths[k % LENGTHS];
		int immediate = k % 3 == 0;
		struct ibv_wc wc;

		if (asking) {
			/* All messages are parts of one pattern, so many can be in flight at once. */
			if (k == 0)
				fill(memory->out, MESSAGE_MAX, 7, 1);
			post(immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, memory->out, length, 0, k);
			continue;
		}
		wc = complete();
		uint32_t grh = type == IBV_QPT_UD ? GRH_BYTES : 0;

		check(wc.wr_id == 1000u + k, "receives in order", k);
		check(wc.byte_len == length + grh, "length of a message", k);
		check(!!(wc.wc_flags & IBV_WC_WITH_IMM) == immediate, "immediate data", k);
		check(!immediate || be32toh(wc.imm_data) == 0xa0000000u + k, "their value", k);
		verify(memory->receives[k] + grh, length, 7, 1, "data of a Send");
	}
	for (int k = 0; asking && k < count; k++)
		check(complete().wr_id == (uint64_t)k, "completions in order", k);
	meet();
}

static void writes(int asking)
{
	for (unsigned k = 0; k < LENGTHS; k++) {
		if (!asking) {
			memset(memory->in, 0, MESSAGE_MAX);
			receive(0);
		}
		meet();
		if (asking) {
			fill(memory->out, lengths[k], k, 1);
			post(IBV_WR_RDMA_WRITE, memory->out, lengths[k] / 2, offsetof(struct memory, in), k);
			post(IBV_WR_RDMA_WRITE_WITH_IMM, memory->out, lengths[k],
			     offsetof(struct memory, in), k);
			complete();
			complete();
		} else {
			struct ibv_wc wc = complete();

			check(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM, "opcode of a Write's receive", k);
			check(be32toh(wc.imm_data) == 0xa0000000u + k, "immediate data of a Write", k);
			verify(memory->in, lengths[k], k, 1, "data of a Write");
			check(memory->in[lengths[k]] == 0, "nothing past a Write", k);
		}
		meet();
	}
}

static void reads(int asking)
{
	fill(memory->source, MESSAGE_MAX, 5, 0);
	meet();
	for (unsigned k = 0; asking && k < LENGTHS; k++) {
		memset(memory->in, 0, MESSAGE_MAX);
		post(IBV_WR_RDMA_READ, memory->in, lengths[k], offsetof(struct memory, source), k);
		complete();
		verify(memory->in, lengths[k], 5, 0, "data of a Read");
		check(memory->in[lengths[k]] == 0, "nothing past a Read", k);
	}
	meet();
}

static void atomics(int asking)
{
	const int count = 12;

	memory->counter = 0;
	meet();
	for (int k = 0; asking && k < count; k++) {
		post(IBV_WR_ATOMIC_FETCH_AND_ADD, &memory->result, 8, offsetof(struct memory, counter), k);
		complete();
		check(memory->result == 3u * k, "result of a fetch-and-add", k);
	}
	for (int k = 3 * count; asking && k < 4 * count; k++) {
		post(IBV_WR_ATOMIC_CMP_AND_SWP, &memory->result, 8, offsetof(struct memory, counter), k);
		complete();
		check(memory->result == (uint64_t)k, "result of a compare-and-swap", k);
	}
	meet();
	check(asking || memory->counter == 4u * count, "sum of the atomics", (int)memory->counter);
	meet();
}

static void turn(int asking)
{
	sends(asking);
	if (type == IBV_QPT_UD)
		return;
	writes(asking);
	if (type == IBV_QPT_UC)
		return;
	reads(asking);
	atomics(asking);
}

static void connect_pair(enum ibv_mtu mtu)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct place own = { .psn = 0xffffe0 + asks_first, .rkey = mr->rkey, .mtu = mtu };
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};
	int reliable = type == IBV_QPT_RC, datagrams = type == IBV_QPT_UD;

	qp = ibv_create_qp(pd, &init);
	check(qp != NULL, "ibv_create_qp", type);
	check(ibv_query_gid(context, 1, gid_index, &own.gid) == 0, "ibv_query_gid", gid_index);
	own.qpn = qp->qp_num;
	own.addr = (uintptr_t)memory;
	send_bytes(&own, sizeof(own));
	receive_bytes(&peer, sizeof(peer));
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0, "INIT", 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = peer.qpn,
		.rq_psn = peer.psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	attr.ah_attr.grh = (struct ibv_global_route){
		.dgid = peer.gid, .sgid_index = gid_index, .hop_limit = 64,
	};
	struct ibv_ah_attr to = attr.ah_attr;

	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE |
		(datagrams ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
		(reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)) == 0, "RTR", 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = own.psn, .timeout = 18, .retry_cnt = 7,
		.rnr_retry = 7, .max_rd_atomic = 4,
	};
	check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
		(reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_MAX_QP_RD_ATOMIC : 0)) == 0, "RTS", 0);
	if (datagrams)
		check((ah = ibv_create_ah(pd, &to)) != NULL, "ibv_create_ah", 0);
	meet();
}

static void run(enum ibv_qp_type wanted, enum ibv_mtu mtu, const char *name)
{
	type = wanted;
	shape = name;
	connect_pair(mtu);
	turn(asks_first);
	turn(!asks_first);
	if (ah)
		ibv_destroy_ah(ah);
	ah = NULL;
	check(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp", 0);
	printf("%s: as sent\n", shape);
	fflush(stdout);
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	shape = "opening";
	for (; list && *list; list++)
		if (!strcmp(ibv_get_device_name(*list), name))
			context = ibv_open_device(*list);
	check(context != NULL, "no such device", 0);
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 256, NULL, channel, 0);
	memory = aligned_alloc(4096, (sizeof(*memory) + 4095) & ~4095ul);
	mr = ibv_reg_mr(pd, memory, sizeof(*memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC);
	check(pd && channel && cq && mr, "no memory", 0);
}

static void meet_peer(const char *port, const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int on = 1;

	hints.ai_flags = host ? 0 : AI_PASSIVE;
	check(getaddrinfo(host, port, &hints, &found) == 0, "no such address", 0);
	control = socket(AF_INET, SOCK_STREAM, 0);
	if (host) {
		check(connect(control, found->ai_addr, found->ai_addrlen) == 0, "connect", 0);
		return;
	}
	int listener = control;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	check(bind(listener, found->ai_addr, found->ai_addrlen) == 0, "bind", 0);
	check(listen(listener, 1) == 0, "listen", 0);
	control = accept(listener, NULL, NULL);
}

int main(int argc, char **argv)
{
	char unreliable;

	if (argc < 4 || argc > 6) {
		fprintf(stderr, "usage: roce-ends DEVICE GID_INDEX PORT [HOST [reliable]]\n");
		return 2;
	}
	alarm(PATIENCE_SECONDS);
	gid_index = atoi(argv[2]);
	open_device(argv[1]);
	asks_first = argc > 4;
	meet_peer(argv[3], asks_first ? argv[4] : NULL);
	unreliable = argc == 5;
	if (asks_first)
		send_bytes(&unreliable, 1);
	else
		receive_bytes(&unreliable, 1);
	run(IBV_QPT_RC, IBV_MTU_256, "RC, MTU 256");
	run(IBV_QPT_RC, IBV_MTU_1024, "RC, MTU 1024");
	run(IBV_QPT_RC, IBV_MTU_4096, "RC, MTU 4096");
	if (unreliable) {
		run(IBV_QPT_UC, IBV_MTU_1024, "UC");
		run(IBV_QPT_UD, IBV_MTU_1024, "UD");
	}
	return 0;
}
