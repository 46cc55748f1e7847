import { expect, it } from 'vitest';
import { NFS_RDMA_PORT } from '#verbs-api/rpcrdma/core/nfs-port';

it('NFS over RDMA uses the port assigned by IANA [RPCR-10-01, RPCR-12-02]', () => {
  expect(NFS_RDMA_PORT).toBe(20049);
});
