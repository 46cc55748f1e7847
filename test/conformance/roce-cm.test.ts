/** Connection management of a RoCE device: a real host and a raw peer, over UDP. */
import { describe, expect, it } from 'vitest';
import type { CMParameters } from '#contract/protocol/commands';
import { CMEventType, QPState, QPType } from '#contract/verbs/enums';
import { type HostCmEvent, type HostId, PortSpace } from '#daemon/host/host-id';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import { until } from '../support/patience.ts';
import { MASKS } from '../support/program-steps.ts';
import {
  GSI_DETH,
  ipHeader,
  Mad,
  mappedGidHex,
  type RawMad,
  type RawRequest,
  readMad,
  requestBody,
  TCP_SERVICE,
  UDP_SERVICE,
  writeMad,
} from '../support/raw-mad.ts';
import { digits, Op } from '../support/raw-roce.ts';
import { RoceFacing, STRANGERS, THEIRS } from '../support/roce-facing.ts';
import { RoceEnd } from '../support/roce-host.ts';

const PORT = 7471;
const [COMM, TRANSACTION] = ['c0000001', '00000001a0000001'];
const THEIR_QPN = 0x00_0321;
const THEIR_PSN = 0x12_3456;
const GSI_QPN = 1;
const WISHES: CMParameters = {
  privateData: Uint8Array.of(9),
  initiatorDepth: 3,
  responderResources: 2,
  wire: undefined,
};

/** A host with a peer that sends the messages of connection management by hand. */
class CmFacing implements AsyncDisposable {
  readonly facing: RoceFacing;
  readonly events: HostCmEvent[] = [];
  #transaction = 0;

  private constructor(facing: RoceFacing) {
    this.facing = facing;
    facing.host.onCmEvent = (_id, event) => this.events.push(event);
  }

  static async open(): Promise<CmFacing> {
    return new CmFacing(await RoceFacing.open(QPType.ud));
  }

  get cm() {
    return this.facing.host.cm;
  }

  /** A queue pair in INIT, as a connection id has it. */
  end(type: QPType = QPType.rc): RoceEnd {
    const end = new RoceEnd(this.facing, 0, type, (bytes) => new ViewBacking(bytes));
    end.modify(QPState.INIT, MASKS[type][0], { accessFlags: 0 });
    return end;
  }

  listen(space: number = PortSpace.tcp): HostId {
    const id = this.cm.createId('listener', space, space === PortSpace.udp);
    this.cm.bindAddr(id, { address: this.facing.address, port: PORT });
    this.cm.listen(id, 4);
    return id;
  }

  async dialed(): Promise<HostId> {
    const id = this.cm.createId('dialer');
    const source = { address: this.facing.address, port: 0 };
    this.cm.resolveAddr(id, { address: THEIRS, port: PORT }, source);
    await this.event(CMEventType.addrResolved);
    this.cm.resolveRoute(id);
    await this.event(CMEventType.routeResolved);
    return id;
  }

  say(attribute: number, body: string, transaction = TRANSACTION, qkey = GSI_DETH): void {
    const rest = `${qkey}${writeMad(attribute, transaction, body)}`;
    this.#transaction += 1;
    const psn = this.#transaction;
    this.facing.say({ opcode: Op.udSendOnly, destQpn: GSI_QPN, psn, rest });
  }

  /** A request of the peer for the service of a port. */
  request(given: Partial<RawRequest> & { port?: number; transaction?: string } = {}): void {
    const { port = PORT, transaction = TRANSACTION, ...fields } = given;
    const body = requestBody({
      ...{ commId: COMM, qpn: THEIR_QPN, psn: THEIR_PSN, service: TCP_SERVICE + BigInt(port) },
      from: mappedGidHex(THEIRS),
      to: mappedGidHex(this.facing.address),
      privateData: `${ipHeader(4660, THEIRS, this.facing.address)}0102`,
      ...fields,
    });
    this.say(Mad.req, body, transaction);
  }

  /** The next message of the host, to QP 1 and with its key. */
  async hear(attribute: number): Promise<RawMad> {
    const [packet] = await this.facing.answers(1);
    expect(packet).toMatchObject({ opcode: Op.udSendOnly, destQpn: GSI_QPN });
    expect(packet?.rest.slice(0, 16)).toBe(GSI_DETH);
    const mad = readMad(packet?.rest.slice(16) ?? '');
    expect(mad.attribute).toBe(attribute);
    return mad;
  }

  async event(type: CMEventType): Promise<HostCmEvent> {
    const event = await until(`event ${type}`, () => this.events.shift());
    expect(event.type, event.text).toBe(type);
    return event;
  }

  /** Accepts a connection of the peer, up to the event that establishes it. */
  async connected(): Promise<{ end: RoceEnd; ours: string; id: HostId }> {
    this.listen();
    this.request();
    const { id } = await this.event(CMEventType.connectRequest);
    const end = this.end();
    this.cm.accept(id, end.qp, WISHES);
    const { body } = await this.hear(Mad.rep);
    const ours = body.slice(0, 8);
    this.say(Mad.rtu, `${COMM}${ours}`);
    await this.event(CMEventType.established);
    return { end, ours, id };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.facing[Symbol.asyncDispose]();
  }
}

/** The body of a REP of the peer to our number. */
function replyBody(ours: string, commId = COMM): string {
  const ends = `${commId}${ours}00000000${digits(THEIR_QPN, 6)}0000000000${digits(THEIR_PSN, 6)}00`;
  // Depths of 4, RNR retries of 7, a shared receive queue; the adapter; private data.
  return `${ends} 04 04 00 f0 0000000000000000 0506`;
}

describe('a request of a peer', () => {
  it('reports its parameters, and is answered by a REP of the same transaction that names both ends [IBCM-MSG-01, IBCM-MSG-02, IBCM-REQ-01, IBCM-REQ-02, IBCM-REP-01, IBCM-REP-02, IBCM-REP-03, IBCM-IP-01, IBCM-IP-02]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    cm.request();
    const { id, ...request } = await cm.event(CMEventType.connectRequest);
    expect(request).toMatchObject({
      initiatorDepth: 4,
      responderResources: 4,
      ib: { qpn: THEIR_QPN, flowControl: true, retryCount: 7, rnrRetry: 7, srq: false },
    });
    expect([...request.privateData.subarray(0, 3)]).toEqual([1, 2, 0]);
    expect(id.peerAddress).toEqual({ address: THEIRS, port: 4660 });
    expect(id.localAddress).toEqual({ address: cm.facing.address, port: PORT });
    const end = cm.end();
    cm.cm.accept(id, end.qp, WISHES);
    const { transaction, body } = await cm.hear(Mad.rep);
    expect(transaction).toBe(TRANSACTION);
    const at = (byte: number, bytes: number): string => body.slice(2 * byte, 2 * (byte + bytes));
    expect(at(0, 4)).not.toBe('00000000');
    expect(at(4, 4)).toBe(COMM);
    expect(at(12, 3)).toBe(digits(end.qp.qpn, 6));
    // Depths: Reads that the host serves, and Reads that it requests.
    expect([at(24, 1), at(25, 1)]).toEqual(['02', '03']);
    expect(at(36, 2)).toBe('0900');
    // Each end names the PSN that it expects first.
    expect(end.qp.queryPath()).toMatchObject({
      sqPsn: THEIR_PSN,
      rqPsn: Number.parseInt(at(20, 3), 16),
      destQpNum: THEIR_QPN,
      pathMtu: 3,
    });
  });

  it('without a listener is rejected with reason 8 [IBCM-REJ-01, IBCM-REJ-02]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    cm.request({ port: 9 });
    const { transaction, body } = await cm.hear(Mad.rej);
    expect(transaction).toBe(TRANSACTION);
    // The peer's number; the rejected message, a REQ; no information; the reason.
    expect(body.slice(8, 24)).toBe(`${COMM}00000008`);
    expect(cm.events).toEqual([]);
  });

  it('is rejected by its program with reason 28 and data, and again when it is repeated [IBCM-REJ-03, IBCM-REJ-04, IBCM-DUP-01]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    cm.request();
    const { id } = await cm.event(CMEventType.connectRequest);
    cm.cm.reject(id, Uint8Array.of(7, 6));
    const first = await cm.hear(Mad.rej);
    expect(first.body.slice(8, 24)).toBe(`${COMM}0000001c`);
    expect(first.body.slice(168, 174)).toBe('070600');
    cm.request();
    expect(await cm.hear(Mad.rej)).toEqual(first);
    expect(cm.events).toEqual([]);
  });

  it('is accepted whatever its LIDs are [IBCM-REQ-07]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    cm.request({ lids: '0001 0002' });
    const { id } = await cm.event(CMEventType.connectRequest);
    cm.cm.accept(id, cm.end().qp, WISHES);
    await cm.hear(Mad.rep);
  });

  it.each([
    [
      'names another address than it comes from [IBCM-REQ-05]',
      { from: mappedGidHex(STRANGERS) },
      12,
    ],
    ['is for a service that rdma_cm does not have [IBCM-REJ-01]', { service: 1n }, 8],
  ] as const)('that %s is rejected', async (_what, fields, reason) => {
    await using cm = await CmFacing.open();
    cm.listen();
    cm.request(fields);
    const { body } = await cm.hear(Mad.rej);
    expect(body.slice(8, 24)).toBe(`${COMM}0000${digits(reason, 4)}`);
    expect(cm.events).toEqual([]);
  });

  it.each([
    ['RC', QPType.rc, 0],
    ['UC', QPType.uc, 1],
  ] as const)(
    'for %s is accepted only with a queue pair of that type [IBCM-REQ-06]',
    async (_name, type, transport) => {
      await using cm = await CmFacing.open();
      cm.listen();
      cm.request({ transport });
      const { id } = await cm.event(CMEventType.connectRequest);
      const other = cm.end(type === QPType.rc ? QPType.uc : QPType.rc);
      expect(() => cm.cm.accept(id, other.qp, WISHES)).toThrow();
      await cm.facing.silence();
      const end = cm.end(type);
      cm.cm.accept(id, end.qp, WISHES);
      await cm.hear(Mad.rep);
      expect(end.qp.queryPath()).toMatchObject({ state: QPState.RTS, destQpNum: THEIR_QPN });
    },
  );

  it('that is repeated gets an MRA while the program decides, then the same REP again, and is reported once [IBCM-MRA-01, IBCM-DUP-02, IBCM-DUP-03]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    cm.request();
    const { id } = await cm.event(CMEventType.connectRequest);
    cm.request();
    const { transaction, body } = await cm.hear(Mad.mra);
    expect(transaction).toBe(TRANSACTION);
    expect([body.slice(8, 16), body.slice(16, 18)]).toEqual([COMM, '00']);
    cm.cm.accept(id, cm.end().qp, WISHES);
    const first = await cm.hear(Mad.rep);
    cm.request();
    expect(await cm.hear(Mad.rep)).toEqual(first);
    expect(cm.events).toEqual([]);
  });

  it('with the number of another one in a new transaction is rejected with reason 30 [IBCM-DUP-04]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    cm.request();
    await cm.event(CMEventType.connectRequest);
    cm.request({ qpn: THEIR_QPN + 1, transaction: '00000001a0000002' });
    const { transaction, body } = await cm.hear(Mad.rej);
    expect([transaction, body.slice(8, 24)]).toEqual(['00000001a0000002', `${COMM}0000001e`]);
    expect(cm.events).toEqual([]);
  });

  it('that names the queue pair of a connection is stale: it is rejected with reason 10, and ends nothing [IBCM-STALE-01, IBCM-STALE-02, IBCM-STALE-03]', async () => {
    await using cm = await CmFacing.open();
    const { end } = await cm.connected();
    cm.request({ commId: 'c0000002', transaction: '00000001a0000002' });
    const heard = await cm.facing.answers(2);
    const mads = heard.map(({ rest }) => readMad(rest.slice(16)));
    const rej = mads.find(({ attribute }) => attribute === Mad.rej);
    expect(rej?.body.slice(8, 24)).toBe('c00000020000000a');
    // It asks the peer, for queue pair 0, whether that still has the connection.
    const probe = mads.find(({ attribute }) => attribute === Mad.dreq);
    expect([probe?.body.slice(8, 16), probe?.body.slice(16, 22)]).toEqual([COMM, '000000']);
    expect([cm.events, end.qp.state]).toEqual([[], QPState.RTS]);
  });
});

describe('a connection', () => {
  it('is established by an RTU [IBCM-RTU-01]', async () => {
    await using cm = await CmFacing.open();
    const { end } = await cm.connected();
    expect(end.qp.state).toBe(QPState.RTS);
  });

  it('ends with a DREQ that names its numbers and queue pair, which is answered by a DREP [IBCM-DREQ-01, IBCM-DREQ-02, IBCM-DREP-01]', async () => {
    await using cm = await CmFacing.open();
    const { end, ours, id } = await cm.connected();
    // Wrong: the queue pair, and our number.
    cm.say(Mad.dreq, `${COMM}${ours}${digits(end.qp.qpn ^ 1, 6)}00`, '00000001a0000008');
    cm.say(Mad.dreq, `${COMM}deadbeef${digits(end.qp.qpn, 6)}00`, '00000001a0000007');
    cm.say(Mad.dreq, `${COMM}${ours}${digits(end.qp.qpn, 6)}00`, '00000001a0000009');
    expect((await cm.event(CMEventType.disconnected)).id).toBe(id);
    await until('the answer', () =>
      cm.facing.heard.some(({ rest }) => {
        const mad = readMad(rest.slice(16));
        return (
          mad.attribute === Mad.drep &&
          mad.transaction === '00000001a0000009' &&
          mad.body.startsWith(`${ours}${COMM}`)
        );
      }),
    );
    await until('the end', () => end.qp.state === QPState.ERR);
  });

  it('that the host ends sends a DREQ, and has ended at the DREP of its peer [IBCM-DREQ-03, IBCM-DREP-02]', async () => {
    await using cm = await CmFacing.open();
    const { end, ours, id } = await cm.connected();
    cm.cm.disconnect(id);
    const { transaction, body } = await cm.hear(Mad.dreq);
    expect(body.slice(0, 22)).toBe(`${ours}${COMM}${digits(THEIR_QPN, 6)}`);
    cm.say(Mad.drep, `${COMM}${ours}`, transaction);
    expect((await cm.event(CMEventType.disconnected)).id).toBe(id);
    expect(end.qp.state).toBe(QPState.ERR);
  });

  it('that the host requests begins with a REQ, and is established or rejected [IBCM-REQ-03, IBCM-RTU-03, IBCM-REJ-05, IBCM-MSG-03, IBCM-IP-03]', async () => {
    await using cm = await CmFacing.open();
    const id = await cm.dialed();
    const end = cm.end();
    cm.cm.connect(id, end.qp, WISHES);
    const { transaction, body } = await cm.hear(Mad.req);
    const at = (byte: number, bytes: number): string => body.slice(2 * byte, 2 * (byte + bytes));
    const ours = at(0, 4);
    expect(at(8, 8)).toBe(digits(TCP_SERVICE + BigInt(PORT), 16));
    expect([at(32, 3), at(48, 2)]).toEqual([digits(end.qp.qpn, 6), 'ffff']);
    expect([at(56, 16), at(72, 16)]).toEqual([
      mappedGidHex(cm.facing.address),
      mappedGidHex(THEIRS),
    ]);
    const port = id.localAddress?.port ?? 0;
    const data = `${ipHeader(port, cm.facing.address, THEIRS)}09`;
    expect(at(140, 37)).toBe(data);
    const rep = replyBody(ours);
    cm.say(Mad.rep, rep, transaction);
    const established = await cm.event(CMEventType.established);
    expect([...established.privateData.subarray(0, 2)]).toEqual([5, 6]);
    const rtu = await cm.hear(Mad.rtu);
    expect([rtu.transaction, rtu.body.slice(0, 16)]).toEqual([transaction, `${ours}${COMM}`]);
    expect(end.qp.queryPath()).toMatchObject({
      state: QPState.RTS,
      destQpNum: THEIR_QPN,
      sqPsn: THEIR_PSN,
      rqPsn: Number.parseInt(at(44, 3), 16),
    });
    // A repeated REP gets the RTU again.
    cm.say(Mad.rep, rep, transaction);
    expect(await cm.hear(Mad.rtu)).toEqual(rtu);
    const other = await cm.dialed();
    cm.cm.connect(other, cm.end().qp, WISHES);
    const next = await cm.hear(Mad.req);
    cm.say(
      Mad.rej,
      `${COMM}${next.body.slice(0, 8)} 00 00 001c ${'00'.repeat(72)} 0b`,
      next.transaction,
    );
    const rejected = await cm.event(CMEventType.rejected);
    expect(rejected).toMatchObject({ id: other, ib: { status: 28 } });
    expect(rejected.privateData[0]).toBe(11);
  });
});

describe('a reply', () => {
  it('that names the queue pair of a connection is stale: it is rejected with reason 10, and ends nothing [IBCM-STALE-04]', async () => {
    await using cm = await CmFacing.open();
    const { end } = await cm.connected();
    const id = await cm.dialed();
    cm.cm.connect(id, cm.end().qp, WISHES);
    const { transaction, body } = await cm.hear(Mad.req);
    cm.say(Mad.rep, replyBody(body.slice(0, 8), 'c0000002'), transaction);
    const heard = await cm.facing.answers(2);
    const mads = heard.map(({ rest }) => readMad(rest.slice(16)));
    const rej = mads.find(({ attribute }) => attribute === Mad.rej);
    // Message 1 is the REP.
    expect(rej?.body.slice(8, 24)).toBe('c00000024000000a');
    const probe = mads.find(({ attribute }) => attribute === Mad.dreq);
    expect([probe?.body.slice(8, 16), probe?.body.slice(16, 22)]).toEqual([COMM, '000000']);
    expect(end.qp.state).toBe(QPState.RTS);
    expect((await until('its end', () => cm.events.shift())).id).toBe(id);
  });
});

describe('a connection that its peer has not confirmed', () => {
  /** An accepted connection, with the REP that the peer received. */
  async function accepted(cm: CmFacing): Promise<{ id: HostId; end: RoceEnd; ours: string }> {
    cm.listen();
    cm.request();
    const { id } = await cm.event(CMEventType.connectRequest);
    const end = cm.end();
    cm.cm.accept(id, end.qp, WISHES);
    const { body } = await cm.hear(Mad.rep);
    return { id, end, ours: body.slice(0, 8) };
  }

  it('is not established by an RTU that names another number [IBCM-RTU-05]', async () => {
    await using cm = await CmFacing.open();
    const { id, ours } = await accepted(cm);
    cm.say(Mad.rtu, `c0000009${ours}`);
    cm.say(Mad.rtu, `${COMM}deadbeef`);
    await cm.facing.silence();
    expect(cm.events).toEqual([]);
    cm.say(Mad.rtu, `${COMM}${ours}`);
    expect((await cm.event(CMEventType.established)).id).toBe(id);
  });

  it('ends with a DREQ of its peer, too [IBCM-DREQ-06]', async () => {
    await using cm = await CmFacing.open();
    const { id, end, ours } = await accepted(cm);
    cm.say(Mad.dreq, `${COMM}${ours}${digits(end.qp.qpn, 6)}00`, '00000001a0000009');
    expect((await until('its end', () => cm.events.shift())).id).toBe(id);
    const { transaction, body } = await cm.hear(Mad.drep);
    expect([transaction, body.slice(0, 16)]).toEqual(['00000001a0000009', `${ours}${COMM}`]);
    await until('the error', () => end.qp.state === QPState.ERR);
  });

  it('ends with a REJ of its reply [IBCM-REJ-08]', async () => {
    await using cm = await CmFacing.open();
    const { id, end, ours } = await accepted(cm);
    // It rejects the REP.
    cm.say(Mad.rej, `${COMM}${ours} 40 00 001c`);
    expect((await until('its end', () => cm.events.shift())).id).toBe(id);
    await until('the error', () => end.qp.state === QPState.ERR);
    await cm.facing.silence();
  });
});

describe('a request that its peer withdraws', () => {
  it('has ended: it can no longer be accepted [IBCM-REJ-09]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    cm.request();
    const { id } = await cm.event(CMEventType.connectRequest);
    // Timeout: the peer got no answer, so it does not know our communication id.
    cm.say(Mad.rej, `${COMM}00000000 00 00 0004`);
    expect((await until('its end', () => cm.events.shift())).id).toBe(id);
    expect(() => cm.cm.accept(id, cm.end().qp, WISHES)).toThrow();
    await cm.facing.silence();
  });
});

describe('a queue pair of the peer', () => {
  it('may be connected again while its last connection is in timewait here [IBCM-TW-03]', async () => {
    await using cm = await CmFacing.open();
    const { id, ours } = await cm.connected();
    cm.cm.disconnect(id);
    const { transaction } = await cm.hear(Mad.dreq);
    cm.say(Mad.drep, `${COMM}${ours}`, transaction);
    await cm.event(CMEventType.disconnected);
    cm.request({ commId: 'c0000002', transaction: '00000001a0000002' });
    const again = await cm.event(CMEventType.connectRequest);
    expect(again.ib?.qpn).toBe(THEIR_QPN);
  });
});

describe('a message', () => {
  it('for a connection that does not exist: a DREQ is answered by a DREP, a REP by a REJ, others are not [IBCM-DREP-03, IBCM-REJ-10, IBCM-MSG-04]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    cm.say(Mad.rtu, `${COMM}00000077`);
    cm.say(Mad.drep, `${COMM}00000077`);
    cm.say(Mad.dreq, `${COMM}0000007700032100`);
    const { transaction, body } = await cm.hear(Mad.drep);
    expect([transaction, body.slice(0, 16)]).toEqual([TRANSACTION, `00000077${COMM}`]);
    expect(cm.events).toEqual([]);
    cm.say(Mad.rep, replyBody('00000077'));
    const rej = await cm.hear(Mad.rej);
    expect(rej.body.slice(8, 24)).toBe(`${COMM}40000006`);
  });

  it('with another Q_Key, class or version is dropped [ROCE-GSI-01, ROCE-GSI-02, IBCM-MSG-05]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    const whole = writeMad(Mad.dreq, TRANSACTION, `${COMM}0000007700032100`);
    const raw = (qkey: string, mad: string) =>
      cm.facing.say({ opcode: Op.udSendOnly, destQpn: GSI_QPN, rest: `${qkey}${mad}` });
    raw('1111111100000001', whole);
    raw(GSI_DETH, `0106${whole.slice(4)}`);
    raw(GSI_DETH, `02${whole.slice(2)}`);
    raw(GSI_DETH, whole.slice(0, 256));
    await cm.facing.arrived(4);
    await cm.facing.silence();
    raw(GSI_DETH, whole);
    await cm.hear(Mad.drep);
  });

  it('to queue pair 0 is dropped [ROCE-GSI-04]', async () => {
    await using cm = await CmFacing.open();
    cm.listen();
    const mad = writeMad(Mad.dreq, TRANSACTION, `${COMM}0000007700032100`);
    for (const deth of [GSI_DETH, '0000000000000000']) {
      cm.facing.say({ opcode: Op.udSendOnly, destQpn: 0, rest: `${deth}${mad}` });
    }
    await cm.facing.arrived(2);
    await cm.facing.silence();
    expect(cm.facing.counters.unexpected).toBe(2);
  });
});

describe('a service of datagrams', () => {
  const body = (port: number): string =>
    `0000005a ffff 0000 ${digits(UDP_SERVICE + BigInt(port), 16)}`;

  it('is found by a SIDR REQ, whose answer has its queue pair and key [IBCM-SIDR-01, IBCM-SIDR-02, IBCM-SIDR-03, IBCM-IP-03]', async () => {
    await using cm = await CmFacing.open();
    cm.listen(PortSpace.udp);
    cm.say(Mad.sidrReq, `${body(PORT)}${ipHeader(4660, THEIRS, cm.facing.address)}05`);
    const { id, privateData } = await cm.event(CMEventType.connectRequest);
    expect([privateData.length, privateData[0]]).toEqual([180, 5]);
    cm.cm.answer(id, {
      ...{ qpn: 0x77, srq: false, privateData: Uint8Array.of(6), qkey: 0 },
      ...{
        responderResources: 0,
        initiatorDepth: 0,
        flowControl: false,
        retryCount: 0,
        rnrRetry: 0,
      },
    });
    const answer = await cm.hear(Mad.sidrRep);
    expect(answer.transaction).toBe(TRANSACTION);
    expect(answer.body.slice(0, 10)).toBe('0000005a00');
    expect(answer.body.slice(16, 22)).toBe('000077');
    expect(answer.body.slice(40, 48)).toBe('01234567');
    expect(answer.body.slice(192, 194)).toBe('06');
  });

  it('that is missing has status 1 [IBCM-SIDR-04]', async () => {
    await using cm = await CmFacing.open();
    cm.listen(PortSpace.udp);
    cm.say(Mad.sidrReq, `${body(9)}${ipHeader(4660, THEIRS, cm.facing.address)}`);
    const { body: answered } = await cm.hear(Mad.sidrRep);
    expect(answered.slice(0, 10)).toBe('0000005a01');
  });
});
