/*
 * Does the work of the bench's native worker in C: posts a batch of signalled RDMA Writes of 64
 * bytes with one call, polls it with another, and measures only these two calls. Between them it
 * sleeps so that the batch is complete when polled; an incomplete batch does not count.
 *
 * usage: post-poll ADDRESS PORT WARM-UPS BATCHES
 *
 * The peer's private data has the target: address (8 bytes) and rkey (4), big-endian. Prints the
 * median of a batch in nanoseconds, and how many batches were counted.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <rdma/rdma_cma.h>

#define BATCH 16
#define LENGTH 64
#define PAUSE_NS 200000
#define RESOLVE_TIMEOUT_MS 2000
/* Pauses after which a batch counts as lost. */
#define PAUSES_MAX 50000

static struct rdma_event_channel *channel;

static void fail(const char *what)
{
	fprintf(stderr, "post-poll: %s: %m\n", what);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The target, from the peer. */
static uint64_t remote_address;
static uint32_t remote_key;

static void await_event(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(channel, &event))
		fail("rdma_get_cm_event");
	if (event->event != wanted) {
		fprintf(stderr, "post-poll: %s, status %d\n", rdma_event_str(event->event),
			event->status);
		exit(1);
	}
	if (wanted == RDMA_CM_EVENT_ESTABLISHED) {
		const uint8_t *parameters = event->param.conn.private_data;

		if (event->param.conn.private_data_len < 12) {
			fprintf(stderr, "post-poll: the peer sends no target in its private data\n");
			exit(1);
		}
		memcpy(&remote_address, parameters, 8);
		memcpy(&remote_key, parameters + 8, 4);
		remote_address = be64toh(remote_address);
		remote_key = be32toh(remote_key);
	}
	rdma_ack_cm_event(event);
}

static struct rdma_cm_id *resolve(const char *address, const char *port)
{
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	struct rdma_cm_id *id;

	channel = rdma_create_event_channel();
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		fail("rdma_create_id");
	if (inet_pton(AF_INET, address, &peer.sin_addr) != 1)
		fail(address);
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, RESOLVE_TIMEOUT_MS))
		fail("rdma_resolve_addr");
	await_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, RESOLVE_TIMEOUT_MS))
		fail("rdma_resolve_route");
	await_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

/* Posts and polls one batch: nanoseconds of the two calls, or -1 if its completions arrived in parts. */
static int64_t one_batch(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_send_wr *first)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	struct ibv_wc wc[BATCH];
	struct ibv_send_wr *bad;
	int64_t spent, start = now_ns();
	int done = 0, pauses = 0, parts = 0;

	if (ibv_post_send(qp, first, &bad))
		fail("ibv_post_send");
	spent = now_ns() - start;
	while (done < BATCH) {
		int taken;

		nanosleep(&pause, NULL);
		if (++pauses > PAUSES_MAX) {
			fprintf(stderr, "post-poll: a batch does not complete\n");
			exit(1);
		}
		start = now_ns();
		taken = ibv_poll_cq(cq, BATCH, wc);
		if (taken < 0)
			fail("ibv_poll_cq");
		if (taken == 0)
			continue;
		spent += now_ns() - start;
		for (int i = 0; i < taken; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "post-poll: %s\n", ibv_wc_status_str(wc[i].status));
				exit(1);
			}
		}
		done += taken;
		parts++;
	}
	return parts == 1 ? spent : -1;
}

static int ascending(const void *left, const void *right)
{
	const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

	return (a > b) - (a < b);
}

int main(int count, char **words)
{
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = 2 * BATCH, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_conn_param parameters = { .initiator_depth = 1, .responder_resources = 1 };
	static char bytes[BATCH * LENGTH];
	struct ibv_send_wr requests[BATCH];
	struct ibv_sge elements[BATCH];
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	int64_t *spent;
	int warm_ups, batches, counted = 0;

	if (count != 5) {
		fprintf(stderr, "usage: post-poll ADDRESS PORT WARM-UPS BATCHES\n");
		return 2;
	}
	warm_ups = atoi(words[3]);
	batches = atoi(words[4]);
	spent = calloc(batches, sizeof(*spent));
	id = resolve(words[1], words[2]);
	pd = ibv_alloc_pd(id->verbs);
	cq = ibv_create_cq(id->verbs, 4 * BATCH, NULL, NULL, 0);
	if (!spent || !pd || !cq)
		fail("ibv_create_cq");
	mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
	attributes.send_cq = attributes.recv_cq = cq;
	if (!mr || rdma_create_qp(id, pd, &attributes))
		fail("rdma_create_qp");
	if (rdma_connect(id, &parameters))
		fail("rdma_connect");
	await_event(RDMA_CM_EVENT_ESTABLISHED);

	memset(requests, 0, sizeof(requests));
	for (int i = 0; i < BATCH; i++) {
		elements[i] = (struct ibv_sge){ .addr = (uintptr_t)bytes + i * LENGTH,
						.length = LENGTH, .lkey = mr->lkey };
		requests[i].wr_id = i;
		requests[i].next = i + 1 < BATCH ? &requests[i + 1] : NULL;
		requests[i].sg_list = &elements[i];
		requests[i].num_sge = 1;
		requests[i].opcode = IBV_WR_RDMA_WRITE;
		requests[i].send_flags = IBV_SEND_SIGNALED;
		requests[i].wr.rdma.remote_addr = remote_address + i * LENGTH;
		requests[i].wr.rdma.rkey = remote_key;
	}
	for (int batch = -warm_ups; batch < batches; batch++) {
		const int64_t ns = one_batch(id->qp, cq, requests);

		if (batch >= 0 && ns >= 0)
			spent[counted++] = ns;
	}
	qsort(spent, counted, sizeof(*spent), ascending);
	printf("%lld %d\n", counted == 0 ? -1LL : (long long)spent[counted / 2], counted);
	rdma_disconnect(id);
	await_event(RDMA_CM_EVENT_DISCONNECTED);
	return 0;
}
