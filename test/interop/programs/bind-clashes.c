/*
 * Which rdma_cm ids may share a port: bind-clashes ADDRESS OTHER-ADDRESS IPV6-ADDRESS PORT <CASES
 *
 * A case is a line of steps separated by ", ", and has its own port, from PORT up. Steps:
 *
 *   bind ID PLACE             PLACE is A, B or C (the addresses above), 4 or 6 (any of that family), then
 *                             ":0" for any port, or ":ID" for the port of that id
 *   listen ID, destroy ID     the first step that names an id creates it. Its first letter selects its
 *                             port space: u and v RDMA_PS_UDP, i and j RDMA_PS_IB, o RDMA_PS_IPOIB, others
 *                             RDMA_PS_TCP
 *   connect ID PLACE          rdma_resolve_addr to that address, and the event
 *   meet ID LISTENER          a whole connection, whose passive end stays until the case is over
 *   share ID, unshare ID      RDMA_OPTION_ID_REUSEADDR on and off
 *   narrow ID, widen ID       RDMA_OPTION_ID_AFONLY on and off
 *   hold T PLACE, serve T     a TCP socket, with SO_REUSEADDR, binds and listens
 *   close T                   and is closed
 *
 * Prints a line for each case: "CASE: RESULT, ...", where a result is ok or the errno.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES 128
#define PASSIVE_END 1
#define RESOLVE_MS 5000

static const char *addresses[3];
static struct rdma_event_channel *events;
static struct rdma_cm_id *ids[NAMES];
static int sockets[NAMES];

union place {
  struct sockaddr any;
  struct sockaddr_in ipv4;
  struct sockaddr_in6 ipv6;
};

/* A malformed case is a mistake of the test. */
static void expect(bool holds, const char *step) {
  if (holds) return;
  printf("misunderstood: %s\n", step);
  exit(2);
}

static uint16_t port_of(const char *word, uint16_t port) {
  if (word[1] != ':') return htons(port);
  if (word[2] == '0') return 0;
  return rdma_get_src_port(ids[(int)word[2]]);
}

static union place place_of(const char *word, uint16_t port) {
  union place place = {.ipv6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any}};
  bool narrow = word[0] == 'A' || word[0] == 'B' || word[0] == '4';
  if (narrow) {
    place = (union place){.ipv4 = {.sin_family = AF_INET}};
    const char *text = word[0] == '4' ? "0.0.0.0" : addresses[word[0] - 'A'];
    expect(inet_pton(AF_INET, text, &place.ipv4.sin_addr) == 1, text);
    place.ipv4.sin_port = port_of(word, port);
    return place;
  }
  const char *text = word[0] == '6' ? "::" : addresses[2];
  expect(inet_pton(AF_INET6, text, &place.ipv6.sin6_addr) == 1, text);
  place.ipv6.sin6_port = port_of(word, port);
  return place;
}

static enum rdma_port_space space_of(char name) {
  switch (name) {
    case 'u':
    case 'v': return RDMA_PS_UDP;
    case 'o': return RDMA_PS_IPOIB;
    case 'i':
    case 'j': return RDMA_PS_IB;
    default: return RDMA_PS_TCP;
  }
}

static struct rdma_cm_id *id_of(char name) {
  struct rdma_cm_id **id = &ids[(int)name];
  if (*id == NULL) expect(rdma_create_id(events, id, NULL, space_of(name)) == 0, "rdma_create_id");
  return *id;
}

static int destroy(char name) {
  struct rdma_cm_id *id = ids[(int)name];
  ids[(int)name] = NULL;
  if (id->qp != NULL) rdma_destroy_qp(id);
  return rdma_destroy_id(id);
}

static int set_option(char name, int option, int value) {
  return rdma_set_option(id_of(name), RDMA_OPTION_ID, option, &value, sizeof value);
}

/* The id of the next event; NULL, with the errno, if it is another event. */
static struct rdma_cm_id *await(enum rdma_cm_event_type type) {
  struct rdma_cm_event *event;
  if (rdma_get_cm_event(events, &event) != 0) return NULL;
  struct rdma_cm_id *id = event->event == type ? event->id : NULL;
  errno = -event->status;
  rdma_ack_cm_event(event);
  return id;
}

/* Resolves a destination; the errno may be the event's. */
static int resolve(char name, struct sockaddr *place) {
  if (rdma_resolve_addr(id_of(name), NULL, place, RESOLVE_MS) != 0) return -1;
  return await(RDMA_CM_EVENT_ADDR_RESOLVED) == NULL ? -1 : 0;
}

static int create_qp(struct rdma_cm_id *id) {
  struct ibv_qp_init_attr init = {
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
  return rdma_create_qp(id, NULL, &init);
}

static int meet(char name, char listener) {
  struct rdma_cm_id *id = id_of(name), *peer;
  struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1};
  if (resolve(name, rdma_get_local_addr(ids[(int)listener])) != 0) return -1;
  if (rdma_resolve_route(id, RESOLVE_MS) != 0) return -1;
  if (await(RDMA_CM_EVENT_ROUTE_RESOLVED) == NULL || create_qp(id) != 0) return -1;
  if (rdma_connect(id, &parameters) != 0) return -1;
  if ((peer = await(RDMA_CM_EVENT_CONNECT_REQUEST)) == NULL) return -1;
  ids[PASSIVE_END] = peer;
  if (create_qp(peer) != 0 || rdma_accept(peer, &parameters) != 0) return -1;
  bool established = await(RDMA_CM_EVENT_ESTABLISHED) != NULL;
  return established && await(RDMA_CM_EVENT_ESTABLISHED) != NULL ? 0 : -1;
}

static int hold(char name, union place place) {
  int on = 1;
  socklen_t bytes = place.any.sa_family == AF_INET ? sizeof place.ipv4 : sizeof place.ipv6;
  int fd = sockets[(int)name] = socket(place.any.sa_family, SOCK_STREAM, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return bind(fd, &place.any, bytes);
}

static int run_step(char *step, uint16_t port) {
  char verb[16], name, where[8] = "";
  int words = sscanf(step, "%15s %c %7s", verb, &name, where);
  bool placed = strcmp(verb, "bind") == 0 || strcmp(verb, "connect") == 0 || strcmp(verb, "hold") == 0;
  bool meets = strcmp(verb, "meet") == 0;
  expect(words == (placed || meets ? 3 : 2), step);
  union place place = place_of(placed ? where : "4", port);
  if (strcmp(verb, "bind") == 0) return rdma_bind_addr(id_of(name), &place.any);
  if (strcmp(verb, "connect") == 0) return resolve(name, &place.any);
  if (meets) return meet(name, where[0]);
  if (strcmp(verb, "hold") == 0) return hold(name, place);
  if (strcmp(verb, "listen") == 0) return rdma_listen(id_of(name), 1);
  if (strcmp(verb, "destroy") == 0) return destroy(name);
  if (strcmp(verb, "share") == 0) return set_option(name, RDMA_OPTION_ID_REUSEADDR, 1);
  if (strcmp(verb, "unshare") == 0) return set_option(name, RDMA_OPTION_ID_REUSEADDR, 0);
  if (strcmp(verb, "narrow") == 0) return set_option(name, RDMA_OPTION_ID_AFONLY, 1);
  if (strcmp(verb, "widen") == 0) return set_option(name, RDMA_OPTION_ID_AFONLY, 0);
  if (strcmp(verb, "serve") == 0) return listen(sockets[(int)name], 1);
  expect(strcmp(verb, "close") == 0, step);
  int fd = sockets[(int)name];
  sockets[(int)name] = 0;
  return close(fd);
}

static void run_case(const char *words, uint16_t port) {
  char *rest = strdup(words), *step;
  printf("%s:", words);
  for (const char *comma = ""; (step = strsep(&rest, ",")) != NULL; comma = ",") {
    int result = run_step(step, port);
    printf("%s %s", comma, result == 0 ? "ok" : strerrorname_np(errno));
  }
  putchar('\n');
  for (int name = 0; name < NAMES; name++) {
    if (ids[name] != NULL) destroy((char)name);
    if (sockets[name] != 0) close(sockets[name]);
    sockets[name] = 0;
  }
}

int main(int count, char **words) {
  char line[256];
  if (count != 5) return 2;
  for (int at = 0; at < 3; at++) addresses[at] = words[1 + at];
  events = rdma_create_event_channel();
  expect(events != NULL, "rdma_create_event_channel");
  for (int port = atoi(words[4]); fgets(line, sizeof line, stdin) != NULL; port++) {
    line[strcspn(line, "\n")] = '\0';
    run_case(line, (uint16_t)port);
  }
  return 0;
}
