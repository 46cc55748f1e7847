/*
 * Sends a message from a client to a server over RDMA.
 *
 *   hello -s [ADDRESS]           serve one client, print its message
 *   hello ADDRESS [MESSAGE]      connect, send, wait for the completion
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT "7471"
#define MESSAGE_MAX 256

static char message[MESSAGE_MAX];

static void check(int failed, const char *call) {
  if (!failed) return;
  perror(call);
  exit(EXIT_FAILURE);
}

/* Creates an endpoint with its own queue pair, which signals all work requests. */
static struct rdma_cm_id *create_endpoint(const char *address, int flags) {
  struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP};
  struct ibv_qp_init_attr attributes = {
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .sq_sig_all = 1,
  };
  struct rdma_addrinfo *found = NULL;
  struct rdma_cm_id *id = NULL;
  check(rdma_getaddrinfo(address, PORT, &hints, &found), "rdma_getaddrinfo");
  check(rdma_create_ep(&id, found, NULL, &attributes), "rdma_create_ep");
  rdma_freeaddrinfo(found);
  return id;
}

static struct ibv_mr *register_message(struct rdma_cm_id *id) {
  struct ibv_mr *region = rdma_reg_msgs(id, message, sizeof message);
  check(region == NULL, "rdma_reg_msgs");
  return region;
}

static void check_completion(int count, const struct ibv_wc *completion, const char *call) {
  check(count < 0, call);
  if (completion->status == IBV_WC_SUCCESS) return;
  fprintf(stderr, "%s: %s\n", call, ibv_wc_status_str(completion->status));
  exit(EXIT_FAILURE);
}

static void serve(const char *address) {
  struct rdma_cm_id *listener = create_endpoint(address, RAI_PASSIVE);
  struct rdma_cm_id *id = NULL;
  struct ibv_wc completion;
  check(rdma_listen(listener, 1), "rdma_listen");
  check(rdma_get_request(listener, &id), "rdma_get_request");
  struct ibv_mr *region = register_message(id);
  /* Before the accept: the client may send as soon as it is connected. */
  check(rdma_post_recv(id, NULL, message, sizeof message, region), "rdma_post_recv");
  check(rdma_accept(id, NULL), "rdma_accept");
  check_completion(rdma_get_recv_comp(id, &completion), &completion, "rdma_get_recv_comp");
  printf("received %u bytes: %.*s\n", completion.byte_len, (int)completion.byte_len, message);
  rdma_disconnect(id);
  rdma_dereg_mr(region);
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
}

static void send_to(const char *address, const char *text) {
  struct rdma_cm_id *id = create_endpoint(address, 0);
  struct ibv_wc completion;
  struct ibv_mr *region = register_message(id);
  size_t length = strnlen(text, sizeof message);
  memcpy(message, text, length);
  check(rdma_connect(id, NULL), "rdma_connect");
  check(rdma_post_send(id, NULL, message, length, region, 0), "rdma_post_send");
  check_completion(rdma_get_send_comp(id, &completion), &completion, "rdma_get_send_comp");
  rdma_disconnect(id);
  rdma_dereg_mr(region);
  rdma_destroy_ep(id);
}

int main(int count, char **words) {
  if (count > 1 && strcmp(words[1], "-s") == 0) {
    serve(count > 2 ? words[2] : "0.0.0.0");
  } else if (count > 1) {
    send_to(words[1], count > 2 ? words[2] : "hello over RDMA");
  } else {
    fprintf(stderr, "usage: hello -s [ADDRESS] | hello ADDRESS [MESSAGE]\n");
    return 2;
  }
  return EXIT_SUCCESS;
}
