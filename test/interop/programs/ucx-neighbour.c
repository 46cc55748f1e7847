/* A verbs program in whose process UCX has replaced mmap. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>

int main(void) {
  ucp_params_t wanted = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
  ucp_context_h ucx;
  if (ucp_init(&wanted, NULL, &ucx) != UCS_OK) return 2;
  struct ibv_device **devices = ibv_get_device_list(NULL);
  struct ibv_context *context = devices == NULL || devices[0] == NULL ? NULL : ibv_open_device(devices[0]);
  if (context == NULL) return 3;
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  printf("%s: %s\n", ibv_get_device_name(devices[0]), cq == NULL ? strerror(errno) : "created");
  if (cq == NULL) return 1;
  ibv_destroy_cq(cq);
  ibv_close_device(context);
  ibv_free_device_list(devices);
  ucp_cleanup(ucx);
  return 0;
}
