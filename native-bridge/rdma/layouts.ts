/**
 * The structs of rdma-core that the bridge reads and writes, as data: size, and for each field its
 * offset and length in bytes, for 64-bit little-endian Linux. A test compiles a probe against the
 * installed headers and compares every number.
 */

type FieldLayout = readonly [offset: number, lengthBytes: number];

export interface StructLayout {
  readonly size: number;
  readonly fields: Readonly<Record<string, FieldLayout>>;
}

/** By the name of the struct in `infiniband/verbs.h`, `rdma/rdma_cma.h` or `netinet/in.h`. */
export const LAYOUTS = {
  ibv_device: {
    size: 664,
    fields: {
      transport_type: [20, 4],
      name: [24, 64],
      dev_name: [88, 64],
    },
  },
  ibv_context: {
    size: 328,
    fields: {
      device: [0, 8],
      'ops.poll_cq': [96, 8],
      'ops.req_notify_cq': [104, 8],
      'ops.post_srq_recv': [168, 8],
      'ops.post_send': [208, 8],
      'ops.post_recv': [216, 8],
      async_fd: [268, 4],
    },
  },
  ibv_device_attr: {
    size: 232,
    fields: {
      fw_ver: [0, 64],
      node_guid: [64, 8],
      max_mr_size: [80, 8],
      vendor_id: [96, 4],
      vendor_part_id: [100, 4],
      hw_ver: [104, 4],
      max_qp: [108, 4],
      max_qp_wr: [112, 4],
      max_sge: [120, 4],
      max_sge_rd: [124, 4],
      max_cq: [128, 4],
      max_cqe: [132, 4],
      max_mr: [136, 4],
      max_pd: [140, 4],
      max_qp_rd_atom: [144, 4],
      max_qp_init_rd_atom: [156, 4],
      atomic_cap: [164, 4],
      max_mw: [176, 4],
      max_srq: [212, 4],
      max_srq_wr: [216, 4],
      max_srq_sge: [220, 4],
      phys_port_cnt: [227, 1],
    },
  },
  ibv_port_attr: {
    size: 52,
    fields: {
      state: [0, 4],
      max_mtu: [4, 4],
      active_mtu: [8, 4],
      max_msg_sz: [20, 4],
    },
  },
  ibv_mr: { size: 48, fields: { lkey: [36, 4], rkey: [40, 4] } },
  ibv_comp_channel: { size: 16, fields: { fd: [8, 4] } },
  ibv_cq: { size: 128, fields: { handle: [24, 4], cqe: [28, 4] } },
  ibv_srq: { size: 128, fields: { handle: [24, 4] } },
  ibv_srq_attr: { size: 12, fields: { max_wr: [0, 4], max_sge: [4, 4], srq_limit: [8, 4] } },
  ibv_srq_init_attr: {
    size: 24,
    fields: {
      'attr.max_wr': [8, 4],
      'attr.max_sge': [12, 4],
      'attr.srq_limit': [16, 4],
    },
  },
  ibv_qp: { size: 160, fields: { handle: [48, 4], qp_num: [52, 4] } },
  ibv_qp_init_attr: {
    size: 64,
    fields: {
      send_cq: [8, 8],
      recv_cq: [16, 8],
      srq: [24, 8],
      'cap.max_send_wr': [32, 4],
      'cap.max_recv_wr': [36, 4],
      'cap.max_send_sge': [40, 4],
      'cap.max_recv_sge': [44, 4],
      'cap.max_inline_data': [48, 4],
      qp_type: [52, 4],
      sq_sig_all: [56, 4],
    },
  },
  ibv_qp_attr: {
    size: 144,
    fields: {
      qp_state: [0, 4],
      qp_access_flags: [32, 4],
      max_rd_atomic: [126, 1],
      max_dest_rd_atomic: [127, 1],
    },
  },
  ibv_sge: { size: 16, fields: { addr: [0, 8], length: [8, 4], lkey: [12, 4] } },
  ibv_send_wr: {
    size: 128,
    fields: {
      wr_id: [0, 8],
      next: [8, 8],
      sg_list: [16, 8],
      num_sge: [24, 4],
      opcode: [28, 4],
      send_flags: [32, 4],
      imm_data: [36, 4],
      'wr.rdma.remote_addr': [40, 8],
      'wr.rdma.rkey': [48, 4],
      'wr.atomic.remote_addr': [40, 8],
      'wr.atomic.compare_add': [48, 8],
      'wr.atomic.swap': [56, 8],
      'wr.atomic.rkey': [64, 4],
    },
  },
  ibv_recv_wr: {
    size: 32,
    fields: {
      wr_id: [0, 8],
      next: [8, 8],
      sg_list: [16, 8],
      num_sge: [24, 4],
    },
  },
  ibv_wc: {
    size: 48,
    fields: {
      wr_id: [0, 8],
      status: [8, 4],
      opcode: [12, 4],
      byte_len: [20, 4],
      imm_data: [24, 4],
      qp_num: [28, 4],
      wc_flags: [36, 4],
    },
  },
  ibv_async_event: { size: 16, fields: { element: [0, 8], event_type: [8, 4] } },
  rdma_event_channel: { size: 4, fields: { fd: [0, 4] } },
  rdma_cm_id: {
    size: 416,
    fields: {
      verbs: [0, 8],
      'route.addr.src_storage': [32, 128],
      'route.addr.dst_storage': [160, 128],
    },
  },
  rdma_cm_event: {
    size: 80,
    fields: {
      id: [0, 8],
      listen_id: [8, 8],
      event: [16, 4],
      status: [20, 4],
      'param.conn.private_data': [24, 8],
      'param.conn.private_data_len': [32, 1],
      'param.conn.responder_resources': [33, 1],
      'param.conn.initiator_depth': [34, 1],
    },
  },
  rdma_conn_param: {
    size: 24,
    fields: {
      private_data: [0, 8],
      private_data_len: [8, 1],
      responder_resources: [9, 1],
      initiator_depth: [10, 1],
      srq: [14, 1],
      qp_num: [16, 4],
    },
  },
  sockaddr_in: { size: 16, fields: { sin_family: [0, 2], sin_port: [2, 2], sin_addr: [4, 4] } },
  sockaddr_in6: {
    size: 28,
    fields: {
      sin6_family: [0, 2],
      sin6_port: [2, 2],
      sin6_addr: [8, 16],
    },
  },
} as const satisfies Record<string, StructLayout>;

/** Constants of the headers that the contract lacks, by the headers' names. */
export const CONSTANTS = {
  IBV_TRANSPORT_IB: 0,
  IBV_TRANSPORT_IWARP: 1,
  IBV_PORT_ACTIVE: 4,
  IBV_ATOMIC_NONE: 0,
  IBV_QPT_RC: 2,
  IBV_QP_STATE: 1 << 0,
  IBV_QP_ACCESS_FLAGS: 1 << 3,
  IBV_QP_MAX_QP_RD_ATOMIC: 1 << 13,
  IBV_QP_MAX_DEST_RD_ATOMIC: 1 << 17,
  IBV_QP_CAP: 1 << 19,
  IBV_SRQ_LIMIT: 1 << 1,
  RDMA_PS_TCP: 0x0106,
  RDMA_MAX_INIT_DEPTH: 0xff,
  RDMA_MAX_RESP_RES: 0xff,
} as const;

export type StructName = keyof typeof LAYOUTS;
export type FieldName<S extends StructName> = keyof (typeof LAYOUTS)[S]['fields'] & string;

export function sizeOf(struct: StructName): number {
  return LAYOUTS[struct].size;
}

/** Offset and length of a field. */
export function fieldOf<S extends StructName>(struct: S, field: FieldName<S>): FieldLayout {
  const fields: Readonly<Record<string, FieldLayout>> = LAYOUTS[struct].fields;
  const layout = fields[field];
  if (layout === undefined) throw new RangeError(`struct ${struct} has no field ${field}`);
  return layout;
}
