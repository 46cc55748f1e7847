/* The parts of the kernel's ABI that this library reads and writes: commands, with their headers,
 * and responses. uverbs: `struct ib_uverbs_*` of rdma/ib_user_verbs.h, with the private parts of
 * rdma/siw-abi.h and rdma/rdma_user_rxe.h. rdma_cm: `struct rdma_ucm_*` of rdma/rdma_user_cm.h.
 * test/unit/preload/abi.test.ts compares the offsets with the daemon's tables. */
#ifndef IWARPD_KERNEL_ABI_H
#define IWARPD_KERNEL_ABI_H

#include <stdint.h>

#define UVERBS_EXTENDED 0x80000000u

enum uverbs_number {
  UVERBS_GET_CONTEXT = 0,
  UVERBS_REG_MR = 9,
  UVERBS_DEREG_MR = 13,
  UVERBS_CREATE_CQ = 18,
  UVERBS_RESIZE_CQ = 19,
  UVERBS_DESTROY_CQ = 20,
  UVERBS_REQUEST_NOTIFY = 23,
  UVERBS_CREATE_QP = 24,
  UVERBS_DESTROY_QP = 27,
  UVERBS_POST_SEND = 28,
  UVERBS_MODIFY_SRQ = 33,
};
#define UVERBS_EX_CREATE_QP (UVERBS_EXTENDED | UVERBS_CREATE_QP)

enum cm_number {
  CM_CREATE_ID = 0,
  CM_DESTROY_ID = 1,
  CM_GET_EVENT = 12,
  CM_SET_OPTION = 14,
  CM_MIGRATE_ID = 18,
};

/* `out`: room for the response; of uverbs in words of 4 bytes, of rdma_cm in bytes. */
struct command_header {
  uint32_t number;
  uint16_t in, out;
};

/* `out` and `provider_out`: in words of 8 bytes. */
struct uverbs_extended_header {
  struct command_header header;
  uint64_t response;
  uint16_t provider_in, provider_out;
  uint32_t reserved;
};

/* Most commands have a response, whose address comes first. */
struct uverbs_plain {
  struct command_header header;
  uint64_t response;
};

/* Rights that let the device write: IB_ACCESS_LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC, MW_BIND. */
#define ACCESS_WRITES 0x1bu

struct uverbs_reg_mr {
  struct command_header header;
  uint64_t response, start, length, hca_va;
  uint32_t pd_handle, access;
};

struct uverbs_dereg_mr {
  struct command_header header;
  uint32_t handle;
};

struct uverbs_create_cq {
  struct command_header header;
  uint64_t response, user_handle;
  uint32_t cqe, comp_vector;
  /* A descriptor, which the daemon knows by the number of its queue; negative for none. */
  int32_t comp_channel;
  uint32_t reserved;
};

struct uverbs_resize_cq {
  struct command_header header;
  uint64_t response;
  uint32_t handle, cqe;
};

struct uverbs_notify {
  struct command_header header;
  uint32_t handle, solicited_only;
};

struct uverbs_create_qp {
  struct command_header header;
  uint64_t response, user_handle;
  uint32_t pd_handle, send_cq, recv_cq, srq_handle;
  uint32_t limits[5];
  uint8_t sq_sig_all, qp_type, is_srq, reserved;
};

/* The first fields of EX_CREATE_QP. */
struct uverbs_ex_create_qp {
  struct uverbs_extended_header header;
  uint64_t user_handle;
  uint32_t pd_handle, send_cq, recv_cq;
};

/* DESTROY_CQ and DESTROY_QP. */
struct uverbs_destroy {
  struct command_header header;
  uint64_t response;
  uint32_t handle, reserved;
};

struct uverbs_post_send {
  struct command_header header;
  uint64_t response;
  uint32_t handle, wr_count, sge_count, wqe_bytes;
};

#define POST_SEND_RESPONSE_BYTES 4u

/* MODIFY_SRQ of rxe's provider, with the address of the `rxe_place` of a resized queue. */
struct rxe_modify_srq {
  struct command_header header;
  uint32_t handle, attr_mask, max_wr, srq_limit;
  uint64_t place;
};

/* CREATE_ID: the program's identifier of the id comes before the response's address. */
struct cm_create_id {
  struct command_header header;
  uint64_t uid, response;
};

/* DESTROY_ID and, without `id`, GET_EVENT. */
struct cm_plain {
  struct command_header header;
  uint64_t response;
  uint32_t id;
};

struct cm_set_option {
  struct command_header header;
  uint64_t value;
  uint32_t id, level, name, length;
};

struct cm_migrate_id {
  struct command_header header;
  uint64_t response;
  uint32_t id;
  /* The descriptor of the id's old file, which the daemon knows by number. */
  int32_t fd;
};

/* The first bytes of any command. */
union kernel_request {
  uint8_t bytes[64];
  struct command_header header;
  struct uverbs_extended_header extended;
  struct uverbs_plain plain;
  struct uverbs_reg_mr reg_mr;
  struct uverbs_dereg_mr dereg_mr;
  struct uverbs_create_cq create_cq;
  struct uverbs_resize_cq resize_cq;
  struct uverbs_notify notify;
  struct uverbs_create_qp create_qp;
  struct uverbs_ex_create_qp ex_create_qp;
  struct uverbs_destroy destroy;
  struct uverbs_post_send post_send;
  struct rxe_modify_srq modify_srq;
  struct cm_create_id create_id;
  struct cm_plain cm;
  struct cm_set_option set_option;
  struct cm_migrate_id migrate_id;
};
_Static_assert(sizeof(union kernel_request) == 64, "commands");

/* The response of GET_CONTEXT: siw's provider has a private part, rxe's has
 * none. */
#define GET_CONTEXT_BYTES 8u

struct siw_created_cq {
  uint32_t handle, cqe, id, count;
  uint64_t key;
};

struct siw_created_qp {
  uint32_t handle, qpn;
  uint32_t limits[6];
  uint32_t id, send_count, receive_count, pad;
  uint64_t send_key, receive_key;
};

/* Where a ring lies in the file of rings: `struct mminfo`. */
struct rxe_place {
  uint64_t offset;
  uint32_t bytes, pad;
};

/* Also the response of RESIZE_CQ, whose first two fields mean something else. */
struct rxe_created_cq {
  uint32_t handle, cqe;
  struct rxe_place place;
};

struct rxe_places {
  struct rxe_place receives;
  struct rxe_place sends;
};

struct rxe_created_qp {
  uint32_t handle, qpn;
  uint32_t limits[6];
  struct rxe_places places;
};

struct rxe_ex_created_qp {
  uint32_t handle, qpn;
  uint32_t limits[6];
  uint32_t comp_mask, response_length;
  struct rxe_places places;
};

enum cm_event_type { CM_ESTABLISHED = 9, CM_DISCONNECTED = 10, CM_DEVICE_REMOVAL = 11 };

/* The first fields of `struct rdma_ucm_event_resp`; the others are zero in events made here. */
struct cm_event {
  uint64_t uid;
  uint32_t id, type;
};

#define CM_EVENT_BYTES 336u
/* Older librdmacm do not have its last fields. */
#define CM_EVENT_MIN_BYTES 324u

#endif
