/** Hostile RPC-over-RDMA peers, and hostile clients and local users of an NFS export. */
import { describe, it } from 'vitest';
import { bites, smoke } from './smoke.ts';

describe('fuzzing RPC over RDMA and NFS', () => {
  it('decodes or refuses any header, RPC message and argument', () => smoke('rpc-codec'));

  it('reposts each receive once, ends each call once, never answers a reply [RPCR-4.2-01, RPCR-4.2-05, RPCR2-4.5-02]', () =>
    smoke('rpc-machine'));

  it('never allows an NFS client to leave the export', () => smoke('nfs-export'));
});

describe('canaries: a planted defect is found', () => {
  it.each(['rpc-codec', 'rpc-machine', 'nfs-export'])('%s', bites);
});
