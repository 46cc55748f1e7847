import { expect, it } from 'vitest';
import { NFS_RDMA_PORT } from '../../../verbs-api/rpcrdma/rpc-client.ts';

it('RPCR-10-01, RPCR-12-02: NFS over RDMA has the port that IANA gave it', () => {
  expect(NFS_RDMA_PORT).toBe(20049);
});
