/*
 * RDMA devices as NCCL prepares them: it loads libibverbs by dlopen, opens each device with an
 * Ethernet link that is not left out, watches its events in a thread, and chooses its GID.
 */
#ifndef IB_DEVICES_H
#define IB_DEVICES_H

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "program.h"

#define DEVICES_MAX 4

/* The verbs that NCCL loads, each with the version that it asks for. */
#define VERBS(verb) \
  verb(get_device_list, "1.1") verb(free_device_list, "1.1") verb(get_device_name, "1.1") \
  verb(open_device, "1.1") verb(close_device, "1.1") verb(get_async_event, "1.1") \
  verb(ack_async_event, "1.1") verb(query_device, "1.1") verb(query_port, "1.1") \
  verb(query_gid, "1.1") verb(query_qp, "1.1") verb(alloc_pd, "1.1") verb(dealloc_pd, "1.1") \
  verb(reg_mr, "1.1") verb(reg_mr_iova2, "1.8") verb(reg_dmabuf_mr, "1.12") \
  verb(dereg_mr, "1.1") verb(create_cq, "1.1") verb(destroy_cq, "1.1") verb(create_qp, "1.1") \
  verb(modify_qp, "1.1") verb(destroy_qp, "1.1") verb(fork_init, "1.1") \
  verb(event_type_str, "1.1") verb(query_ece, "1.10") verb(set_ece, "1.10") \
  verb(wc_status_str, "1.1")

#define DECLARE_VERB(name, version) __typeof__(ibv_##name) *name;
#define LOAD_VERB(name, version) \
  verbs.name = (__typeof__(verbs.name))MADE(dlvsym(library, "ibv_" #name, "IBVERBS_" version));

static struct {
  VERBS(DECLARE_VERB)
} verbs;

struct device {
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_port_attr port;
  int gid_index;
  union ibv_gid gid;
  struct ibv_mr *data_mr, *scratch_mr;
  atomic_int fatal;
};

static struct device devices[DEVICES_MAX];
static int device_count;

static __attribute__((format(printf, 1, 2))) void say(const char *format, ...) {
  char line[400];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  printf("%s: %s\n", title, line);
}

static const char *name_of(const struct device *device) {
  return verbs.get_device_name(device->context->device);
}

static void load_verbs(void) {
  void *library = MADE(dlopen("libibverbs.so.1", RTLD_NOW));
  VERBS(LOAD_VERB)
  CHECK(verbs.fork_init() == 0);
}

/* A fatal event is counted where its object points to, and ends the rank when it looks there. */
static void *watch_events(void *argument) {
  struct device *device = argument;
  struct ibv_async_event event;
  while (verbs.get_async_event(device->context, &event) == 0) {
    const char *text = verbs.event_type_str(event.event_type);
    switch (event.event_type) {
      case IBV_EVENT_COMM_EST:
        break;
      case IBV_EVENT_DEVICE_FATAL:
        say("event on %s: %s", name_of(device), text);
        device->fatal++;
        break;
      case IBV_EVENT_CQ_ERR:
        say("event on %s: %s", name_of(device), text);
        ++*(atomic_int *)event.element.cq->cq_context;
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR: {
        struct ibv_qp_attr attr = {0};
        struct ibv_qp_init_attr init;
        verbs.query_qp(event.element.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init);
        say("event on %s: %s, state %d", name_of(device), text, attr.qp_state);
        ++*(atomic_int *)event.element.qp->qp_context;
        break;
      }
      default:
        say("event on %s: %s", name_of(device), text);
    }
    verbs.ack_async_event(&event);
  }
  return NULL;
}

/* The port's rate, in Mb/s. */
static int rate(const struct ibv_port_attr *port) {
  static const int speeds[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000, 200000};
  static const int widths[] = {1, 4, 8, 12, 2};
  int speed = __builtin_ctz(port->active_speed | 1 << 8);
  int width = __builtin_ctz(port->active_width | 1 << 4);
  return speeds[speed] * widths[width];
}

static bool is_ipv4(const union ibv_gid *gid) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  return memcmp(gid->raw, mapped, sizeof mapped) == 0;
}

static int roce_version(const struct device *device, int gid_index) {
  char path[PATH_MAX], type[16] = "";
  snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%d",
           name_of(device), gid_index);
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0);
  CHECK(read(fd, type, sizeof type - 1) > 0);
  close(fd);
  return strncmp(type, "RoCE v2", 7) == 0 ? 2 : 1;
}

/* The first GID of an IPv4 address, and rather one of RoCEv2. */
static void choose_gid(struct device *device) {
  CHECK(verbs.query_gid(device->context, 1, 0, &device->gid) == 0);
  for (int index = 1; index < device->port.gid_tbl_len; index++) {
    union ibv_gid gid;
    CHECK(verbs.query_gid(device->context, 1, index, &gid) == 0);
    if (!is_ipv4(&gid)) continue;
    if (is_ipv4(&device->gid)) {
      int version = roce_version(device, index);
      if (version != 2 || roce_version(device, device->gid_index) == version) continue;
    }
    device->gid = gid;
    device->gid_index = index;
  }
}

/* Whether the device can register memory of a DMA buffer: a wrong descriptor is refused otherwise. */
static bool takes_dma_buffers(struct device *device) {
  struct ibv_pd *pd = MADE(verbs.alloc_pd(device->context));
  errno = 0;
  CHECK(verbs.reg_dmabuf_mr(pd, 0, 0, 0, -1, 0) == NULL);
  bool takes = errno != EOPNOTSUPP && errno != EPROTONOSUPPORT;
  CHECK(verbs.dealloc_pd(pd) == 0);
  return takes;
}

/* Whether NCCL_IB_HCA, names after `^=`, leaves a device out. */
static bool is_left_out(const char *name) {
  const char *list = getenv("NCCL_IB_HCA");
  if (list == NULL) return false;
  CHECK(strncmp(list, "^=", 2) == 0);
  char *names = MADE(strdup(list + 2)), *rest = names;
  bool found = false;
  for (const char *each; (each = strsep(&rest, ",")) != NULL;) found |= strcmp(each, name) == 0;
  free(names);
  return found;
}

static void open_devices(void) {
  int count;
  struct ibv_device **list = MADE(verbs.get_device_list(&count));
  for (int at = 0; at < count && device_count < DEVICES_MAX; at++) {
    struct device *device = &devices[device_count];
    struct ibv_device_attr attr;
    device->context = MADE(verbs.open_device(list[at]));
    CHECK(verbs.query_device(device->context, &attr) == 0 && attr.phys_port_cnt == 1);
    /* As the inline function of newer headers: they append to the struct. */
    struct {
      struct ibv_port_attr attr;
      uint32_t active_speed_ex;
    } port;
    struct verbs_context *context = verbs_get_ctx_op(device->context, query_port);
    CHECK(context != NULL);
    CHECK(context->query_port(device->context, 1, &port.attr, sizeof port) == 0);
    device->port = port.attr;
    if (port.attr.state != IBV_PORT_ACTIVE || port.attr.link_layer != IBV_LINK_LAYER_ETHERNET ||
        is_left_out(name_of(device))) {
      CHECK(verbs.close_device(device->context) == 0);
      continue;
    }
    char path[PATH_MAX], real[PATH_MAX];
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", name_of(device));
    CHECK(realpath(path, real) != NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, watch_events, device) == 0);
    CHECK(pthread_detach(thread) == 0);
    choose_gid(device);
    say("%s: %d Mb/s, %s, GID %d, %s DMA buffers", name_of(device), rate(&device->port), real,
        device->gid_index, takes_dma_buffers(device) ? "takes" : "no");
    device_count++;
  }
  verbs.free_device_list(list);
  CHECK(device_count > 0);
}

#endif
