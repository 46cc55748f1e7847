/** The reasons of completions in error, at both ends, on the real objects of one host. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WC } from '#contract/verbs/completion';
import { Access, QPState, SendFlag, WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { Provider } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import {
  completions,
  connectedPair,
  DEVICE,
  pairOfTest,
  read,
  remote,
  type Side,
  type StartedFixture,
  send,
  write,
} from '#test/support/provider-fixture';
import {
  connectTo,
  exchanged,
  ROCE_DEVICE,
  rocePair,
  rocePairOfTest,
  roceSide,
} from '#test/support/roce-fixture';
import { incRkey } from '#verbs-api/index';

const REGION_BYTES = 65_536;
const signaled = SendFlag.signaled;
let provider: Provider;
let started: StartedFixture;

beforeAll(async () => {
  provider = await createEmbedded({ devices: [DEVICE, ROCE_DEVICE] });
  started = { server: provider, client: provider, stop: () => provider.close() };
});
afterAll(() => started.stop());

/** A number as sentences print keys and addresses. */
function hex(value: number | bigint): string {
  return `0x${value.toString(16)}`;
}

async function failed(
  side: Pick<Side, 'connection'> | { readonly cq: Side['connection']['cq'] },
): Promise<WC> {
  const cq = 'cq' in side ? side.cq : side.connection.cq;
  const [wc] = await completions(cq);
  if (wc === undefined) throw new Error('a completion');
  return wc;
}

describe('over RoCE', () => {
  it('names the end of a Write beyond its region, at both ends', async () => {
    const { client, server } = await rocePairOfTest(started);
    server.qp.postRecv({ wrId: 5, sgList: [] });
    client.qp.postSend({
      ...write([client.mr.sge(0, 8192)], server.mr, REGION_BYTES - 4096),
      wrId: 7,
    });
    const wc = await failed(client);
    expect(wc.status).toBe(WCStatus.remAccessErr);
    const { rkey, address } = server.mr;
    const at = hex(address + BigInt(REGION_BYTES - 4096));
    const finding = `RDMA Write of 8192 bytes at ${at} ends 4096 bytes beyond the MR of rkey ${hex(rkey)} (${hex(address)} + ${REGION_BYTES})`;
    expect(wc.reason).toBe(
      `remote access error: the peer (QP ${server.qp.qpNum} at 127.0.0.1) refused 8192 bytes at ${at}, rkey ${hex(rkey)}; it found that the ${finding}`,
    );
    const flushed = await failed(server);
    expect(flushed.reason).toBe(
      `1 receive flushed: QP ${server.qp.qpNum} went to ERR because the peer's ${finding}`,
    );
  });

  it('names the unknown key, and the missing right of a region', async () => {
    await using unknown = await rocePair(started);
    const { client, server } = unknown;
    client.qp.postSend({ ...write([client.mr.sge(0, 8)], server.mr), rkey: 0x123456 });
    expect((await failed(client)).reason).toContain(
      'names rkey 0x123456, which is not or no longer registered',
    );
    await using zero = await rocePair(started);
    zero.client.qp.postSend({ ...write([zero.client.mr.sge(0, 8)], zero.server.mr), rkey: 0 });
    expect((await failed(zero.client)).reason).toContain(
      'names rkey 0x0: it was never exchanged, or it belongs to a region registered without IBV_ACCESS_REMOTE_*',
    );
    await using right = await rocePair(started);
    const mr = await right.server.pd.allocMR(4096, Access.localWrite | Access.remoteRead);
    right.client.qp.postSend(write([right.client.mr.sge(0, 8)], mr));
    expect((await failed(right.client)).reason).toContain(
      `needs REMOTE_WRITE, which the MR of rkey ${hex(mr.rkey)} does not grant (it grants LOCAL_WRITE, REMOTE_READ)`,
    );
    await using local = await rocePair(started);
    const closed = await local.server.pd.allocMR(4096, Access.localWrite);
    local.client.qp.postSend(read([local.client.mr.sge(0, 8)], closed));
    expect((await failed(local.client)).reason).toContain(
      'an MR that grants no remote access (registered with LOCAL_WRITE)',
    );
  });

  it('names the right that a queue pair itself withholds', async () => {
    const { client, server } = await rocePairOfTest(started, undefined, {
      server: { access: Access.localWrite },
    });
    client.qp.postSend(write([client.mr.sge(0, 8)], server.mr));
    const wc = await failed(client);
    expect(wc.status).toBe(WCStatus.remInvReqErr);
    expect(wc.reason).toMatch(
      /^remote invalid request error: .*its qp_access_flags lack REMOTE_WRITE$/,
    );
  });

  it('names the lengths of a message and of its receive, at both ends', async () => {
    const { client, server } = await rocePairOfTest(started);
    server.qp.postRecv({ wrId: 3, sgList: [server.mr.sge(0, 4096)] });
    client.qp.postSend(send([client.mr.sge(0, 8192)], 4));
    const sent = await failed(client);
    expect(sent.status).toBe(WCStatus.remOpErr);
    expect(sent.reason).toContain('there: message of 8192 bytes or more, receive buffer of 4096');
    const received = await failed(server);
    expect(received.status).toBe(WCStatus.locLenErr);
    expect(received.reason).toBe(
      'local length error: message of 8192 bytes or more, receive buffer of 4096',
    );
  });

  it('names the peer without a receive, and the number of retries', async () => {
    const path = { client: { rnrRetry: 2 } };
    const { client, server } = await rocePairOfTest(started, undefined, path);
    client.qp.postSend(send([client.mr.sge(0, 8)]));
    const wc = await failed(client);
    expect(wc.status).toBe(WCStatus.rnrRetryExcErr);
    expect(wc.reason).toBe(
      `RNR retry counter exceeded: the peer (QP ${server.qp.qpNum} at 127.0.0.1) had no receive posted, 2 retries of 0.01 ms`,
    );
  });

  it('names the unacknowledged packet', async () => {
    await using server = await roceSide(provider);
    await using client = await roceSide(provider);
    const peer = await exchanged(server);
    await connectTo(client.qp, peer, { timeout: 8, retryCnt: 2 });
    client.qp.postSend(send([client.mr.sge(0, 8)]));
    const wc = await failed(client);
    expect(wc.status).toBe(WCStatus.retryExcErr);
    expect(wc.reason).toBe(
      `transport retry counter exceeded: no response from the peer (QP ${server.qp.qpNum} at 127.0.0.1) to PSN 16777214 after 2 retries of 1 ms; QP ${server.qp.qpNum} there is in RESET: it receives in RTR and RTS`,
    );
  });

  it('explains why a queue pair of this host does not reply', async () => {
    const hasty = { timeout: 8, retryCnt: 1 };
    await using absent = await rocePair(started, undefined, {
      client: { ...hasty, destQpNum: 0xffffff },
    });
    absent.client.qp.postSend(send([absent.client.mr.sge(0, 8)]));
    expect((await failed(absent.client)).reason).toMatch(
      /; there is no QP 16777215 of this user there$/,
    );
    await using psn = await rocePair(started, undefined, { client: { ...hasty, sqPsn: 3 } });
    const { client, server } = psn;
    client.qp.postSend(send([client.mr.sge(0, 8)]));
    expect((await failed(client)).reason).toContain(
      `; QP ${server.qp.qpNum} there expects PSN 16777214, and the packet has 3: its rq_psn must be our sq_psn`,
    );
    await using other = await rocePair(started, undefined, {
      client: hasty,
      server: { destQpNum: 0xfffffe },
    });
    other.client.qp.postSend(send([other.client.mr.sge(0, 8)]));
    expect((await failed(other.client)).reason).toContain(
      `there takes packets of QP 16777214 (its dest_qp_num), not of ${other.client.qp.qpNum}`,
    );
  });

  it('names the SGE that its queue may not use', async () => {
    const { client } = await rocePairOfTest(started);
    const { address, lkey } = client.mr;
    const piece = { addr: address + 60_000n, length: 6000, lkey };
    client.qp.postSend(send([client.mr.sge(0, 8), piece], 9));
    client.qp.postSend(send([client.mr.sge(0, 8)], 10));
    const [first, second] = await completions(client.cq, 2);
    expect(first?.status).toBe(WCStatus.locProtErr);
    const end = 60_000 + 6000 - REGION_BYTES;
    const sentence = `SGE 1 (6000 bytes at ${hex(piece.addr)}, lkey ${hex(lkey)}) ends ${end} bytes beyond its MR (${hex(address)} + ${REGION_BYTES})`;
    expect(first?.reason).toBe(`local protection error: ${sentence}`);
    expect(second?.reason).toBe(
      `1 send flushed: QP ${client.qp.qpNum} went to ERR because ${sentence}`,
    );
  });

  it('reports work that the program itself ended, and is silent about success', async () => {
    await using pair = await rocePair(started);
    const { client, server } = pair;
    server.qp.postRecv({ sgList: [server.mr.sge(0, 8)] });
    server.qp.postRecv({ sgList: [server.mr.sge(0, 8)] });
    client.qp.postSend(send([client.mr.sge(0, 8)]));
    expect((await failed(server)).reason).toBeUndefined();
    await server.qp.modify({ state: QPState.ERR });
    expect((await failed(server)).reason).toBe(
      'flushed: its connection ended, or its queue pair was moved to ERR or destroyed',
    );
  });
});

describe('over iWARP', () => {
  it('reports why the peer refused a Read', async () => {
    const { client, server } = await pairOfTest(started);
    const mr = await server.pd.allocMR(4096, Access.localWrite | Access.remoteWrite);
    client.connection.qp.postSend({ ...read([client.mr.sge(0, 64)], mr), wrId: 2 });
    const wc = await failed(client);
    expect(wc.status).toBe(WCStatus.remAccessErr);
    expect(wc.reason).toContain('remote access error: the peer sent a Terminate: access rights');
    expect(wc.reason).toContain(
      `; it found that the RDMA Read of 64 bytes at ${hex(mr.address)} needs REMOTE_READ, which the MR of rkey ${hex(mr.rkey)} does not grant (it grants LOCAL_WRITE, REMOTE_WRITE)`,
    );
  });

  it('blames an earlier Write for flushed work', async () => {
    const { client, server } = await pairOfTest(started);
    client.connection.qp.postRecv({ sgList: [client.mr.sge(0, 8)] });
    server.connection.qp.postRecv({ sgList: [server.mr.sge(0, 8)] });
    client.connection.qp.postSend({ ...write([client.mr.sge(0, 8)], server.mr), rkey: 0x77 });
    const finding = `RDMA Write of 8 bytes at ${hex(server.mr.address)} names rkey 0x77, which is not or no longer registered`;
    expect((await failed(server)).reason).toBe(
      `1 receive flushed: QP ${server.connection.qp.qpNum} went to ERR because the peer's ${finding}`,
    );
    // The Write itself completed once it was sent.
    const mine = await completions(client.connection.cq, 2);
    const flushed = mine.find(({ opcode }) => opcode === WCOpcode.recv);
    expect(flushed?.reason).toContain(`; it found that the ${finding}`);
  });

  it('names the lengths of a message and of its receive', async () => {
    const { client, server } = await pairOfTest(started);
    server.connection.qp.postRecv({ sgList: [server.mr.sge(0, 4096)] });
    client.connection.qp.postSend(send([client.mr.sge(0, 8192)]));
    const wc = await failed(server);
    expect(wc.status).toBe(WCStatus.locLenErr);
    expect(wc.reason).toMatch(
      /^local length error: message of \d+ bytes or more, receive buffer of 4096$/,
    );
  });

  it('names the excess right of a bind, and the wrong STag of an invalidation', async () => {
    const { client, server } = await pairOfTest(started);
    const plain = await client.pd.allocMR(4096, Access.localWrite);
    const mw = await client.pd.allocMW(2);
    client.connection.qp.postSend({
      opcode: WROpcode.bindMW,
      flags: signaled,
      bind: {
        rkey: incRkey(mw.rkey),
        lkey: plain.lkey,
        addr: plain.address,
        length: 64,
        access: Access.remoteRead,
      },
    });
    const wc = await failed(client);
    expect(wc.status).toBe(WCStatus.mwBindErr);
    expect(wc.reason).toBe(
      `memory window bind error: the MR of lkey ${hex(plain.lkey)} was registered without MW_BIND`,
    );
    await using other = await connectedPair(started);
    other.server.connection.qp.postRecv({ sgList: [other.server.mr.sge(0, 8)] });
    other.client.connection.qp.postSend({
      opcode: WROpcode.sendWithInv,
      flags: signaled,
      invalidateRkey: 0x99,
      sgList: [other.client.mr.sge(0, 8)],
    });
    const received = await failed(other.server);
    expect(received.status).toBe(WCStatus.remInvReqErr);
    expect(received.reason).toContain('Send with Invalidate names rkey 0x99');
    expect(server.mr.lkey).not.toBe(plain.lkey);
  });

  it('names a receive whose memory its queue may not use', async () => {
    const { client, server } = await pairOfTest(started);
    const read = await server.pd.allocMR(64, Access.remoteRead);
    server.connection.qp.postRecv({
      sgList: [{ addr: read.address, length: 64, lkey: read.lkey }],
    });
    client.connection.qp.postSend(send([client.mr.sge(0, 8)]));
    const wc = await failed(server);
    expect(wc.status).toBe(WCStatus.locProtErr);
    expect(wc.reason).toContain('its MR was registered without LOCAL_WRITE');
  });

  it('names an atomic that is not aligned', async () => {
    const { client, server } = await pairOfTest(started);
    client.connection.qp.postSend({
      opcode: WROpcode.atomicFetchAndAdd,
      flags: signaled,
      sgList: [client.mr.sge(0, 8)],
      ...remote(server.mr, 4),
      compareAdd: 1n,
    });
    expect((await failed(client)).reason).toContain('is not aligned to 8 bytes');
  });
});
