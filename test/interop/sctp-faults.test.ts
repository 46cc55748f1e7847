/** Faults on devices of SCTP: a bad network, which connections survive, and kinds that are rejected. */
import { afterEach, describe, expect, it } from 'vitest';
import type { FaultSpec } from '#contract/protocol/faults';
import { CMEventType, QPState, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { Fault } from '#daemon/faults/fault';
import { SCTP, sctpCarrier } from '#daemon/host/sctp/sctp-carrier';
import { UsrsctpTransport } from '#daemon/host/sctp/usrsctp-transport';
import { ownAddress } from '../support/own-address.ts';
import { quiet } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type Channel, NO_WISHES, RnicNode } from '../support/rnic-node.ts';
import { until } from '../support/sctp-pair.ts';

const A = ownAddress(61);
const B = ownAddress(62);
const MESSAGES = 20;
const MESSAGE_BYTES = 40_000;
/** Longer than SCTP takes to send a packet again. */
const DELAY_MS = 300;

/**
 * In place of the kernel's SCTP, which only a guest has: libusrsctp carries the messages, and
 * faults cannot affect its packets.
 */
const KERNEL_SCTP = sctpCarrier((clock) => {
  const transport = new UsrsctpTransport(clock);
  transport.addFilter = () => {};
  return transport;
});

describeWith(['sctp'], 'faults over SCTP', () => {
  const nodes: RnicNode[] = [];

  afterEach(() => Promise.all(nodes.splice(0).map(({ host }) => host.close())));

  function host(devices: Readonly<Record<string, string>>, kernel = false): RnicNode {
    const node = new RnicNode({
      carriers: [kernel ? KERNEL_SCTP : SCTP],
      devices: Object.entries(devices).map(([name, address]) => {
        const sctpTransport = kernel ? ('kernel' as const) : ('usrsctp' as const);
        return { name, addresses: [address], lowerLayer: 'sctp' as const, sctpTransport };
      }),
    });
    nodes.push(node);
    return node;
  }

  /** Two connected channels, from A to B. */
  async function connected(from: RnicNode, to: RnicNode): Promise<readonly [Channel, Channel]> {
    const listener = to.listen(B);
    const active = from.channel('a');
    const passive = to.channel('b');
    const id = await from.connect(active, listener.at);
    await until('a request', () => to.eventsOf(listener.id).length > 0);
    const request = await to.event(listener.id);
    to.host.cm.accept(request.id, passive.qp, NO_WISHES);
    await until('the connection', () => from.eventsOf(id).length > 0);
    expect((await from.event(id)).type).toBe(CMEventType.established);
    expect((await to.event(request.id)).type).toBe(CMEventType.established);
    return [active, passive];
  }

  /** Writes that all arrive, then a Send. */
  async function transfer(active: Channel, passive: Channel): Promise<void> {
    for (let at = 0; at < active.buffer.length; at += 1) active.buffer[at] = (at * 13) & 0xff;
    passive.buffer.fill(0);
    passive.receive(1_000_000, 64);
    for (let count = 0; count < MESSAGES; count += 1) {
      const at = count * MESSAGE_BYTES;
      active.postSend({
        opcode: WROpcode.rdmaWrite,
        sgList: [{ addr: active.address(at), length: MESSAGE_BYTES, lkey: active.mr.lkey }],
        remoteAddr: passive.address(at),
        rkey: passive.mr.rkey,
      });
    }
    active.send(0, 8);
    const found = [...passive.poll()];
    await until('the Send', () => {
      found.push(...passive.poll());
      return found.length > 0;
    });
    expect(found).toMatchObject([{ status: WCStatus.success, byteLen: 8 }]);
    const written = MESSAGES * MESSAGE_BYTES;
    expect(
      Buffer.compare(passive.buffer.subarray(0, written), active.buffer.subarray(0, written)),
    ).toBe(0);
  }

  const kinds: readonly FaultSpec[] = [
    { kind: 'drop', probability: 0.1, seed: 1 },
    { kind: 'duplicate', probability: 0.3, seed: 2 },
    { kind: 'reorder', probability: 0.3, seed: 3 },
    { kind: 'delay', ms: 5, probability: 0.3, seed: 4 },
    { kind: 'drop', probability: 0.1, seed: 5, device: 'b', direction: 'in' },
  ];
  describe.each([
    ['two devices of a host', 1],
    ['two hosts', 2],
  ])('between %s', (_, count) => {
    it.each(kinds)('%j delivers the data unchanged [SCTP-6.1-02, SCTP-10-02]', async (spec) => {
      const one = count === 1 ? host({ a: A, b: B }) : host({ a: A });
      const other = count === 1 ? one : host({ b: B });
      const faults = [...new Set([one, other])].map((node) =>
        node.host.faults.add(spec, undefined),
      );
      await transfer(...(await connected(one, other)));
      const fired = faults.reduce((total, { status }) => total + status.fired, 0);
      expect(fired).toBeGreaterThan(0);
    });
  });

  it('affect the queue pair and device that they name, until they are removed', async () => {
    const node = host({ a: A, b: B });
    const [active, passive] = await connected(node, node);
    const { qpn } = passive.qp;
    const other = node.host.faults.add({ kind: 'drop', qp: qpn + 100 }, undefined);
    const own = node.host.faults.add(
      { kind: 'delay', ms: 100 * DELAY_MS, qp: qpn, device: 'b', direction: 'in' },
      undefined,
    );
    passive.receive(0, 64);
    active.send(0, 8);
    await quiet(DELAY_MS);
    expect(passive.poll()).toEqual([]);
    expect(other.status.matched).toBe(0);
    expect(own.status.fired).toBeGreaterThan(0);
    node.host.faults.remove(own.id);
    expect(await passive.completions(1)).toMatchObject([{ byteLen: 8 }]);
  });

  it('end a connection whose peer went silent, once data is sent', async () => {
    const node = host({ a: A, b: B });
    const [active] = await connected(node, node);
    node.host.faults.add({ kind: 'drop' }, undefined);
    active.send(0, 8);
    await until('the end', () => active.qp.state !== QPState.RTS);
    expect(active.qp.state).toBe(QPState.ERR);
    expect(node.notices.some(({ text }) => text.includes('connection lost'))).toBe(true);
  });

  /** Adds a fault to the device of A, and sends: a Write to B, then a Send. */
  function provoke(spec: FaultSpec, node: RnicNode, [active, passive]: readonly Channel[]): Fault {
    const fault = node.host.faults.add({ device: 'a', ...spec }, undefined);
    if (active === undefined || passive === undefined) return fault;
    passive.receive(1_000_000, 64);
    active.postSend({
      opcode: WROpcode.rdmaWrite,
      sgList: [{ addr: active.address(), length: MESSAGE_BYTES, lkey: active.mr.lkey }],
      remoteAddr: passive.address(),
      rkey: passive.mr.rkey,
    });
    active.send(0, 8);
    return fault;
  }

  it.each([
    ['corrupt-stag', 'write', /STag/],
    ['corrupt-msn', 'send', /MSN/],
    ['corrupt-mo', 'send', /MO|offset/],
  ] as const)(
    '%s is found by the rule of its field, and ends in a Terminate',
    async (kind, opcode, text) => {
      const node = host({ a: A, b: B });
      const channels = await connected(node, node);
      const fault = provoke({ kind, opcode, once: true }, node, channels);
      await until('both ends', () => channels.every(({ qp }) => qp.state === QPState.ERR));
      expect(fault.status.fired).toBe(1);
      const texts = node.notices.map((notice) => notice.text);
      expect(
        texts.some((each) => each.includes('the peer sent a Terminate') && text.test(each)),
      ).toBe(true);
    },
  );

  it('send a Terminate, as for a local error', async () => {
    const node = host({ a: A, b: B });
    const channels = await connected(node, node);
    provoke({ kind: 'terminate', opcode: 'send' }, node, channels);
    await until('both ends', () => channels.every(({ qp }) => qp.state === QPState.ERR));
    expect(node.notices.some(({ text }) => text.includes('the peer sent a Terminate'))).toBe(true);
  });

  it.each([
    { kind: 'reset', afterBytes: 10_000 },
    { kind: 'reset', afterBytes: 10_000, direction: 'in', device: 'b' },
    { kind: 'close', afterBytes: 10_000 },
    { kind: 'close', afterBytes: 10_000, direction: 'in', device: 'b' },
  ] satisfies readonly FaultSpec[])(
    '%j ends the association, and both ends are lost',
    async (spec) => {
      const node = host({ a: A, b: B });
      const channels = await connected(node, node);
      const fault = provoke(spec, node, channels);
      await until('both ends', () => channels.every(({ qp }) => qp.state === QPState.ERR));
      expect(fault.status.fired).toBe(1);
      const [, passive] = channels;
      expect(passive.poll().some(({ status }) => status === WCStatus.success)).toBe(false);
      await until('no connection', () => [...node.host.connections()].length === 0);
    },
  );

  it.each([
    { kind: 'stall', ms: DELAY_MS, opcode: 'send' },
    { kind: 'bandwidth', bytesPerSecond: 200_000 },
    { kind: 'delay', ms: 20, probability: 0.2, seed: 7 },
  ] satisfies readonly FaultSpec[])('%j only takes its time', async (spec) => {
    const node = host({ a: A, b: B });
    const [active, passive] = await connected(node, node);
    active.buffer.fill(0x5a, 0, MESSAGE_BYTES);
    const fault = provoke(spec, node, [active, passive]);
    expect(await passive.completions(1)).toMatchObject([{ byteLen: 8 }]);
    expect(fault.status.fired).toBeGreaterThan(0);
    expect(passive.buffer.subarray(0, MESSAGE_BYTES).every((byte) => byte === 0x5a)).toBe(true);
  });

  it('hold messages back by a stall without a time limit until it is removed', async () => {
    const node = host({ a: A, b: B });
    const [active, passive] = await connected(node, node);
    const fault = provoke({ kind: 'stall' }, node, [active, passive]);
    await quiet(DELAY_MS);
    expect(passive.poll()).toEqual([]);
    node.host.faults.remove(fault.id);
    expect(await passive.completions(1)).toMatchObject([{ byteLen: 8 }]);
  });

  it('delay an event until its message', async () => {
    const node = host({ a: A, b: B });
    const [active, passive] = await connected(node, node);
    const fault = provoke({ kind: 'qp-fatal', opcode: 'send' }, node, []);
    expect(active.qp.state).toBe(QPState.RTS);
    passive.receive(0, 64);
    active.send(0, 8);
    await until('the end', () => active.qp.state === QPState.ERR);
    expect(fault.status.fired).toBe(1);
  });

  it('delay the reply to an Initiate (mpa-silent, mpa-late) and lower its depths (mpa-depths)', async () => {
    const node = host({ a: A, b: B });
    const { faults } = node.host;
    const silent = faults.add({ kind: 'mpa-silent', device: 'b' }, undefined);
    faults.add({ kind: 'mpa-depths', device: 'b', ird: 3, ord: 2 }, undefined);
    const listener = node.listen(B);
    const active = node.channel('a');
    const id = await node.connect(active, listener.at);
    await until('a request', () => node.eventsOf(listener.id).length > 0);
    const request = await node.event(listener.id);
    node.host.cm.accept(request.id, node.channel('b').qp, NO_WISHES);
    await quiet(DELAY_MS);
    expect(node.eventsOf(id)).toEqual([]);
    expect(silent.status.fired).toBe(1);
    faults.remove(silent.id);
    const established = await node.event(id);
    expect(established.type).toBe(CMEventType.established);
    expect(active.qp.query()).toMatchObject({ maxRdAtomic: 3 });
    faults.add({ kind: 'mpa-late', ms: 50, device: 'b' }, undefined);
    await connected(node, node);
  });

  it('for FPDU fields and RoCE packets are rejected with a list of valid kinds', () => {
    const { faults } = host({ a: A }).host;
    expect(faults.wrongTransport({ kind: 'slice', bytes: 1, device: 'a' })).toMatch(
      /^slice acts on iWARP devices over TCP, and a is over SCTP, whose messages are whole; use one of delay, /,
    );
    for (const kind of ['corrupt-crc', 'corrupt-marker', 'corrupt-length'] as const) {
      expect(faults.wrongTransport({ kind })).toMatch(
        /all devices are over SCTP, whose messages have no /,
      );
    }
    expect(faults.wrongTransport({ kind: 'nak', syndrome: 'psn-sequence' })).toMatch(/RoCE/);
    const kinds = [
      'drop',
      'delay',
      'mpa-reject',
      'qp-fatal',
      'cq-overrun',
      'stall',
      'reset',
    ] as const;
    for (const kind of kinds) expect(faults.wrongTransport({ kind, device: 'a' })).toBeUndefined();
  });

  it('of packets are rejected on kernel SCTP, with the reason; messages of its devices are delayed and corrupted', async () => {
    const node = host({ a: A, b: B }, true);
    const { faults } = node.host;
    for (const kind of ['drop', 'duplicate', 'reorder'] as const) {
      expect(faults.wrongTransport({ kind, device: 'a' })).toMatch(
        new RegExp(`^${kind} acts on packets, and the kernel makes those of a: use tc .* delay, `),
      );
      expect(faults.wrongTransport({ kind })).toMatch(/the kernel makes those of the devices/);
    }
    for (const kind of ['delay', 'stall', 'reset', 'corrupt-msn', 'mpa-reject', 'port-down']) {
      expect(faults.wrongTransport({ kind: kind as FaultSpec['kind'] }), kind).toBeUndefined();
    }
    const channels = await connected(node, node);
    const [active, passive] = channels;
    const late = faults.add({ kind: 'delay', ms: 100 * DELAY_MS, device: 'a' }, undefined);
    active.buffer.fill(0x5a, 0, 8);
    passive.receive(0, 64);
    active.send(0, 8);
    await quiet(DELAY_MS);
    expect(passive.poll()).toEqual([]);
    expect(late.status.fired).toBeGreaterThan(0);
    faults.remove(late.id);
    expect(await passive.completions(1)).toMatchObject([{ byteLen: 8 }]);
    const wrong = provoke({ kind: 'corrupt-msn', opcode: 'send', once: true }, node, channels);
    await until('both ends', () => channels.every(({ qp }) => qp.state === QPState.ERR));
    expect(wrong.status.fired).toBe(1);
  });

  it('reject a connection without asking the program', async () => {
    const node = host({ a: A, b: B });
    const listener = node.listen(B);
    node.host.faults.add({ kind: 'mpa-reject', device: 'b' }, undefined);
    const id = await node.connect(node.channel('a'), listener.at);
    expect((await node.event(id)).type).toBe(CMEventType.rejected);
    expect(node.eventsOf(listener.id)).toEqual([]);
  });
});
