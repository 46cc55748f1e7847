/** The port of NFS over RDMA (RFC 8166 §9, RPCR-10-01). */
export const NFS_RDMA_PORT = 20049;
