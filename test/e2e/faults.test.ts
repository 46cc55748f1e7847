/** The effect of each kind of fault on a TypeScript program. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { FaultKind, FaultSpec } from '#contract/protocol/faults';
import {
  AsyncEventType,
  QPState,
  SendFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { withFault } from '#verbs-api/testing/index';
import {
  completions,
  eventsOf,
  type FaultEnd,
  FaultPair,
  postRead,
  postSend,
  postWrite,
} from '../support/fault-pair.ts';
import { madeToken } from '../support/http-token.ts';
import { failure } from '../support/outcomes.ts';
import { quiet, until } from '../support/patience.ts';

let pair: FaultPair;
let control: DaemonControl;
let left: FaultEnd;
let right: FaultEnd;

beforeEach(async () => {
  pair = await FaultPair.start();
  control = new DaemonControl({ socketPath: pair.rig.socketPath });
});

afterEach(() => pair.stop());

const connect = async (): Promise<void> => {
  ({ left, right } = await pair.connect());
};

const eventTypes = ({ events }: FaultEnd) => events.map(({ type }) => type);

/** A Send from left to right arrives whole. */
async function expectArrives(from = left, to = right): Promise<void> {
  postSend(from);
  const [received] = await completions(to, 1);
  expect(received).toMatchObject({ status: WCStatus.success, opcode: WCOpcode.recv, byteLen: 64 });
  await completions(from, 1);
}

/** Sends from the right, after which the left has no reason to send an empty Write. */
const expectSpoken = (): Promise<void> => expectArrives(right, left);

const bothDisconnect = (): Promise<unknown> =>
  Promise.all([left.disconnected(), right.disconnected()]);

async function elapsedMs(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

describe('the bytes of a connection', () => {
  beforeEach(connect);

  it('delay: bytes arrive later, in each direction', async () => {
    await pair.withFault({ kind: 'delay', ms: 80, device: 'left', direction: 'out' }, async () => {
      expect(await elapsedMs(() => expectArrives())).toBeGreaterThanOrEqual(79);
    });
    await pair.withFault({ kind: 'delay', ms: 80, device: 'right', direction: 'in' }, async () => {
      expect(await elapsedMs(() => expectArrives())).toBeGreaterThanOrEqual(79);
    });
    expect(await control.faults()).toEqual([]);
    await expectArrives();
  });

  it('delay: only for one message, and nothing overtakes it', async () => {
    await expectSpoken();
    const spec: FaultSpec = { kind: 'delay', ms: 80, device: 'left', opcode: 'write', nth: 1 };
    await pair.withFault(spec, async (fault) => {
      await expectArrives();
      expect((await fault.status()).matched).toBe(0);
      left.mr.buffer[0] = 0x77;
      postWrite(left, right);
      expect(await elapsedMs(() => expectArrives())).toBeGreaterThanOrEqual(79);
      expect(right.mr.buffer[0]).toBe(0x77);
      expect(await fault.status()).toMatchObject({ matched: 1, fired: 1 });
    });
  });

  it('bandwidth: bytes arrive at the given rate', async () => {
    const spec: FaultSpec = { kind: 'bandwidth', bytesPerSecond: 160_000, device: 'left' };
    await pair.withFault(spec, async () => {
      const ms = await elapsedMs(async () => {
        postWrite(left, right, 32_000);
        await expectArrives();
      });
      expect(ms).toBeGreaterThanOrEqual(199);
    });
  });

  it('slice: bytes arrive in pieces, and everything arrives', async () => {
    for (const direction of ['in', 'out'] as const) {
      await pair.withFault({ kind: 'slice', bytes: 7, direction }, async (fault) => {
        crypto.getRandomValues(left.mr.buffer.subarray(0, 32_000));
        postWrite(left, right, 32_000);
        await expectArrives();
        const [sent, placed] = [left, right].map(({ mr }) => mr.buffer.subarray(0, 32_000));
        expect(Buffer.compare(sent ?? Buffer.of(1), placed ?? Buffer.of(2))).toBe(0);
        expect((await fault.status()).fired).toBeGreaterThan(0);
      });
      await completions(left, 1);
    }
  });

  it('stall: nothing arrives until the fault is removed', async () => {
    await pair.withFault({ kind: 'stall', device: 'left', direction: 'out' }, async () => {
      postSend(left);
      await quiet(150);
      expect(right.cq.poll()).toEqual([]);
    });
    const [received] = await completions(right, 1);
    expect(received).toMatchObject({ status: WCStatus.success, byteLen: 64 });
  });

  it.each(['in', 'out'] as const)('reset: TCP breaks after so many bytes %s', async (direction) => {
    await expectSpoken();
    const spec: FaultSpec = { kind: 'reset', afterBytes: 100, device: 'left', direction };
    await pair.withFault(spec, async (fault) => {
      const [from, to] = direction === 'out' ? [left, right] : [right, left];
      // An FPDU of 64 bytes and its header is shorter than 100; two are longer.
      postSend(from);
      expect((await completions(to, 1))[0]).toMatchObject({ status: WCStatus.success });
      postSend(from);
      await bothDisconnect();
      expect((await completions(to, 1))[0]).toMatchObject({ status: WCStatus.wrFlushErr });
      await until('the event', () => eventTypes(right).includes(AsyncEventType.qpFatal));
      expect(await fault.status()).toMatchObject({ matched: 1, fired: 1 });
    });
  });

  it('close: a FIN within an FPDU is a loss for the peer, and nothing of it is placed', async () => {
    const spec: FaultSpec = { kind: 'close', afterBytes: 40, device: 'left', direction: 'out' };
    await pair.withFault(spec, async () => {
      right.mr.buffer.fill(0, 0, 64);
      left.mr.buffer.fill(0xee, 0, 64);
      postWrite(left, right);
      await right.disconnected();
      expect(right.mr.buffer.subarray(0, 64).some((byte) => byte !== 0)).toBe(false);
      await until('the event', () => eventTypes(right).includes(AsyncEventType.qpFatal));
    });
  });

  it('close: a FIN between FPDUs is a graceful end', async () => {
    await pair.withFault({ kind: 'close', device: 'right', direction: 'in' }, async () => {
      postSend(left);
      await bothDisconnect();
      expect(eventTypes(right)).toEqual([]);
    });
  });
});

describe('a corrupted FPDU', () => {
  const send = (): void => postSend(left);

  /** The peer's report of the first fault that it finds. */
  async function terminateOf(
    kind: FaultKind,
    post: (from: FaultEnd, to: FaultEnd) => void,
  ): Promise<string> {
    await connect();
    await expectSpoken();
    return await pair.withFault({ kind, device: 'left', once: true }, async (fault) => {
      post(left, right);
      await bothDisconnect();
      await until('the event', () => left.events.length > 0);
      expect(await fault.status()).toMatchObject({ fired: 1 });
      return left.events.map(({ text }) => text).join();
    });
  }

  it('corrupt-crc: the peer ends the stream for its CRC', async () => {
    expect(await terminateOf('corrupt-crc', send)).toMatch(/\(layer 2, type 0, code 2\)/);
  });

  it('corrupt-marker: the peer ends the stream for its marker', async () => {
    await pair.stop();
    pair = await FaultPair.start({ markersRequested: true });
    control = new DaemonControl({ socketPath: pair.rig.socketPath });
    const text = await terminateOf('corrupt-marker', () => postSend(left, 1000));
    expect(text).toMatch(/\(layer 2, type 0, code 3\)/);
  });

  it('corrupt-length: the peer looks for the CRC in the wrong place', async () => {
    expect(await terminateOf('corrupt-length', send)).toMatch(/\(layer 2, type 0, code 2\)/);
  });

  it('corrupt-stag: the peer knows no such STag, of a Write and of a Read', async () => {
    expect(await terminateOf('corrupt-stag', postWrite)).toMatch(/\(layer 1, type 1, code 0\)/);
    expect(await terminateOf('corrupt-stag', postRead)).toMatch(/\(layer 0, type 1, code 0\)/);
  });

  it('corrupt-msn: the peer has no message of this number', async () => {
    expect(await terminateOf('corrupt-msn', send)).toMatch(/\(layer 1, type 2, code 3\)/);
  });

  it('corrupt-mo: the peer has no room there', async () => {
    expect(await terminateOf('corrupt-mo', send)).toMatch(/\(layer 1, type 2, code 4\)/);
  });

  it('terminate: both ends see a local error of the device', async () => {
    await connect();
    const spec: FaultSpec = { kind: 'terminate', device: 'left', opcode: 'send', nth: 2 };
    await pair.withFault(spec, async () => {
      await expectArrives();
      postSend(left);
      await bothDisconnect();
      await until('the events', () => left.events.length > 0 && right.events.length > 0);
      expect(right.events[0]).toMatchObject({ type: AsyncEventType.qpFatal });
      expect(right.events[0]?.text).toMatch(
        /the peer sent a Terminate: .*\(layer 0, type 0, code 0\)/,
      );
      expect(left.events[0]?.text).toMatch(/sent a Terminate: fault 1 ends the stream/);
      const logged = pair.rig.log.map((line): unknown => JSON.parse(line));
      for (const [{ qp, events }, device, address] of [
        [left, 'left', '127.0.0.3 port '],
        [right, 'right', '127.0.0.2 port '],
      ] as const) {
        const peer = expect.stringContaining(address);
        const line = { device, qpn: qp.qpNum, peer, msg: events[0]?.text };
        expect(logged).toContainEqual(expect.objectContaining(line));
      }
    });
  });
});

describe('a failing MPA startup', () => {
  it('mpa-reject: the client is rejected, and the server is not asked', async () => {
    const requests: unknown[] = [];
    pair.nextRequest().then(
      (request) => requests.push(request),
      () => undefined,
    );
    await pair.withFault({ kind: 'mpa-reject', device: 'right', once: true }, async (fault) => {
      await expect(pair.dial()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
      expect(await fault.status()).toMatchObject({ fired: 1 });
    });
    expect(requests).toEqual([]);
  });

  it('mpa-late: the client waits', async () => {
    await pair.withFault({ kind: 'mpa-late', ms: 120, device: 'right' }, async () => {
      expect(await elapsedMs(() => pair.connect())).toBeGreaterThanOrEqual(119);
    });
    await connect();
    await expectArrives();
  });

  it('mpa-silent: the client waits until the fault is removed', async () => {
    let connected = false;
    const connecting = await pair.withFault({ kind: 'mpa-silent', device: 'right' }, async () => {
      const both = pair.connect().then((ends) => {
        connected = true;
        return ends;
      });
      await quiet(200);
      expect(connected).toBe(false);
      return { both };
    });
    ({ left, right } = await connecting.both);
    await expectArrives();
  });

  it('mpa-depths: the client has fewer Reads in flight, and still reads', async () => {
    await pair.withFault({ kind: 'mpa-depths', device: 'right', ird: 2 }, async () => {
      await connect();
      expect(left.established).toMatchObject({ initiatorDepth: 2 });
      for (let i = 0; i < 8; i += 1) postRead(left, right);
      const all = await completions(left, 8);
      expect(all.every(({ status }) => status === WCStatus.success)).toBe(true);
    });
    await connect();
    expect(left.established.initiatorDepth).toBeGreaterThan(2);
  });

  it('mpa-depths: the server sees a lower read depth', async () => {
    const spec: FaultSpec = { kind: 'mpa-depths', opcode: 'mpa-request', ird: 4, ord: 3 };
    await pair.withFault(spec, async () => {
      const requesting = pair.nextRequest();
      const dialing = pair.dial();
      const request = await requesting;
      expect(request).toMatchObject({ initiatorDepth: 4, responderResources: 3 });
      await Promise.all([request.accept(), dialing]);
    });
  });
});

describe('completions', () => {
  it('cq-overrun: one completion is lost, with an event, and the queue pair continues', async () => {
    await connect();
    const { qpNum: qp } = right.qp;
    const spec: FaultSpec = { kind: 'cq-overrun', device: 'right', qp, nth: 2 };
    await pair.withFault(spec, async () => {
      for (let i = 0; i < 3; i += 1) postSend(left);
      await completions(left, 3);
      const received = await completions(right, 2);
      expect(received.map(({ wrId }) => wrId)).toEqual([0n, 2n]);
      await until('the event', () => eventTypes(right).includes(AsyncEventType.cqErr));
    });
  });

  it('completion-event-lost: the completion arrives without an event', async () => {
    await connect();
    await pair.withFault({ kind: 'completion-event-lost', device: 'right' }, async (fault) => {
      const signal = AbortSignal.timeout(300);
      const waiting = right.cq.wait({ signal });
      postSend(left);
      await expect(waiting).rejects.toMatchObject({ name: 'TimeoutError' });
      expect(await fault.status()).toMatchObject({ fired: 1 });
      expect(right.cq.poll()).toHaveLength(1);
    });
  });

  it('completion-event-late: the event arrives late', async () => {
    await connect();
    const spec: FaultSpec = { kind: 'completion-event-late', ms: 100, device: 'right' };
    await pair.withFault(spec, async () => {
      const waiting = right.cq.wait();
      postSend(left);
      expect(await elapsedMs(() => waiting)).toBeGreaterThanOrEqual(95);
    });
  });

  it('srq-limit: the event comes, whatever the limit', async () => {
    const context = await pair.provider.open('right');
    const events = eventsOf(context);
    const pd = await context.allocPD();
    const cq = await context.createCQ({ cqe: 16 });
    const srq = await pd.createSRQ({ maxWr: 8 });
    const mr = await pd.allocMR(512, 1);
    for (let i = 0; i < 8; i += 1) srq.postRecv({ sgList: [mr.sge(i * 64, 64)] });
    const accepting = pair.nextRequest().then((request) => request.accept({ pd, cq, srq }));
    const dialed = await pair.dial();
    await accepting;
    await pair.withFault({ kind: 'srq-limit', device: 'right', nth: 2 }, async (fault) => {
      const own = await dialed.pd.allocMR(64, 1);
      for (let i = 0; i < 3; i += 1) {
        const sgList = [own.sge(0, 16)];
        dialed.qp.postSend({ opcode: WROpcode.send, flags: SendFlag.signaled, sgList });
      }
      await until('the event', () => events.length > 0);
      expect(events).toMatchObject([{ type: AsyncEventType.srqLimitReached }]);
      await until('the receives', () => cq.poll().length >= 0);
      expect(await fault.status()).toMatchObject({ fired: 1 });
    });
  });
});

describe('a device that fails', () => {
  beforeEach(connect);

  it('port-down: the port is down, with an event at its start and at its end', async () => {
    await pair.withFault({ kind: 'port-down', device: 'left' }, async () => {
      expect(await left.context.queryPort()).toMatchObject({ state: 'down' });
      expect(await right.context.queryPort()).toMatchObject({ state: 'active' });
    });
    expect(await left.context.queryPort()).toMatchObject({ state: 'active' });
    await until('the events', () => left.events.length === 2);
    expect(eventTypes(left)).toEqual([AsyncEventType.portErr, AsyncEventType.portActive]);
    expect(right.events).toEqual([]);
  });

  it('port-up: an event without a change', async () => {
    await pair.withFault({ kind: 'port-up', device: 'left' }, async () => {
      await until('the event', () => left.events.length > 0);
      expect(eventTypes(left)).toEqual([AsyncEventType.portActive]);
    });
  });

  it('qp-fatal: at once, one queue pair, and its connection', async () => {
    const second = await pair.connect();
    const { qpNum } = left.qp;
    await pair.withFault({ kind: 'qp-fatal', device: 'left', qp: qpNum }, async (fault) => {
      expect(await fault.status()).toMatchObject({ fired: 1 });
      await right.disconnected();
      await until('the event', () => left.events.length > 0);
      expect(left.events).toMatchObject([{ type: AsyncEventType.qpFatal, qpNum }]);
      expect(await left.qp.query()).toMatchObject({ state: QPState.ERR });
      const flushed = await completions(left, 1);
      expect(flushed[0]).toMatchObject({ status: WCStatus.wrFlushErr });
      await expectArrives(second.left, second.right);
    });
  });

  it('qp-fatal: with the nth message', async () => {
    const spec: FaultSpec = { kind: 'qp-fatal', device: 'left', opcode: 'send', nth: 3 };
    await pair.withFault(spec, async (fault) => {
      await expectArrives();
      await expectArrives();
      expect(await fault.status()).toMatchObject({ matched: 2, fired: 0 });
      postSend(left);
      await bothDisconnect();
      await until('the event', () => eventTypes(left).includes(AsyncEventType.qpFatal));
    });
  });

  it('device-fatal: its event, and all of its queue pairs', async () => {
    await pair.withFault({ kind: 'device-fatal', device: 'left' }, async () => {
      await right.disconnected();
      await until('the event', () => eventTypes(left).includes(AsyncEventType.deviceFatal));
      expect(await left.qp.query()).toMatchObject({ state: QPState.ERR });
      expect(eventTypes(right)).not.toContain(AsyncEventType.deviceFatal);
    });
  });
});

describe('verbs that fail', () => {
  it('errno: the nth of one verb, of one device', async () => {
    const context = await pair.provider.open('left');
    const other = await pair.provider.open('right');
    const which = { verb: 'allocPD', nth: 2, device: 'left' } as const;
    const spec: FaultSpec = { kind: 'errno', errno: 'ENOMEM', ...which };
    await pair.withFault(spec, async () => {
      await other.allocPD();
      await other.allocPD();
      await context.allocPD();
      await expect(context.allocPD()).rejects.toMatchObject({
        code: 'ENOMEM',
        message: 'allocPD failed by injected fault 1',
      });
      await context.allocPD();
    });
  });

  it('errno: only of the selected process', async () => {
    const context = await pair.provider.open('left');
    const elsewhere = process.pid + 1;
    const spec: FaultSpec = { kind: 'errno', errno: 'EBUSY', verb: 'createCQ', pid: elsewhere };
    await pair.withFault(spec, async () => {
      await context.createCQ({ cqe: 1 });
    });
    await pair.withFault({ ...spec, pid: process.pid }, async () => {
      await expect(context.createCQ({ cqe: 1 })).rejects.toMatchObject({ code: 'EBUSY' });
    });
  });

  it('errno: any verb that creates or changes an object, never one that destroys it', async () => {
    const context = await pair.provider.open('left');
    const pd = await context.allocPD();
    await pair.withFault({ kind: 'errno', errno: 'EIO' }, async () => {
      await expect(pd.allocMR(64, 1)).rejects.toMatchObject({ code: 'EIO' });
      await expect(pair.provider.open('left')).rejects.toMatchObject({ code: 'EIO' });
      await expect(pair.dial()).rejects.toMatchObject({ code: 'EIO' });
      await pd.close();
    });
  });
});

describe('a peer', () => {
  it('is the other end, with its port or with any', async () => {
    const { port } = pair.listener.address;
    await connect();
    await expectSpoken();
    const metAt = async (peer: string) => {
      return await pair.withFault({ kind: 'slice', bytes: 10, peer }, async (fault) => {
        await expectArrives();
        return (await fault.status()).fired;
      });
    };
    expect(await metAt('127.0.0.3')).toBe(1);
    expect(await metAt(`127.0.0.3:${port}`)).toBe(1);
    expect(await metAt(`127.0.0.2`)).toBe(1);
    expect(await metAt(`127.0.0.2:${port}`)).toBe(0);
    expect(await metAt('::1')).toBe(0);
  });
});

describe('triggers', () => {
  /** Which of 40 verbs fail. */
  async function failures(spec: Partial<FaultSpec>): Promise<number[]> {
    const context = await pair.provider.open('left');
    const failed: number[] = [];
    const whole: FaultSpec = { kind: 'errno', errno: 'EAGAIN', verb: 'queryDevice', ...spec };
    await pair.withFault(whole, async (fault) => {
      for (let i = 1; i <= 40; i += 1) {
        await context.queryDevice().catch(() => failed.push(i));
      }
      expect(await fault.status()).toMatchObject({ matched: 40, fired: failed.length });
    });
    return failed;
  }

  it('happen on every occasion, the nth, every nth, or once', async () => {
    expect(await failures({})).toHaveLength(40);
    expect(await failures({ nth: 7 })).toEqual([7]);
    expect(await failures({ every: 16 })).toEqual([16, 32]);
    expect(await failures({ once: true })).toEqual([1]);
    expect(await failures({ every: 5, once: true })).toEqual([5]);
  });

  it('fire with a probability; the reported seed repeats the choices', async () => {
    const chance = { verb: 'queryQP', probability: 0.3 } as const;
    const added = await control.addFault({ kind: 'errno', errno: 'EAGAIN', ...chance });
    const { seed } = added.spec;
    expect(seed).toBeTypeOf('number');
    const spec = { probability: 0.3, ...(seed === undefined ? {} : { seed }) };
    const first = await failures(spec);
    expect(first.length).toBeGreaterThan(2);
    expect(first.length).toBeLessThan(25);
    expect(await failures(spec)).toEqual(first);
    expect(await failures({ ...spec, seed: (spec.seed ?? 0) + 1 })).not.toEqual(first);
  });
});

describe('withFault', () => {
  const spec: FaultSpec = { kind: 'delay', ms: 1 };

  it('removes its fault when its body throws, and throws that', async () => {
    const reason = new Error('the body');
    await expect(pair.withFault(spec, () => Promise.reject(reason))).rejects.toBe(reason);
    expect(await control.faults()).toEqual([]);
  });

  it('tolerates that the fault was removed', async () => {
    await pair.withFault(spec, async (fault) => {
      await control.removeFaults();
      expect(await fault.status()).toMatchObject({ id: fault.id, fired: 0 });
    });
  });

  it('refuses a spec before its body runs, over the socket and HTTP', async () => {
    const { url } = pair.rig.daemon.ready.http ?? {};
    const { socketPath } = pair.rig;
    for (const place of [{ socketPath }, { url, token: madeToken(socketPath) }]) {
      const body = (): never => {
        throw new Error('the body ran');
      };
      const wrong = withFault({ kind: 'delay' }, body, place);
      await expect(wrong).rejects.toEqual(failure('EINVAL', 'ms: required by delay'));
    }
  });
});

describe('output that faults hold back', () => {
  beforeEach(connect);

  it('does not delay the end of a daemon, even if a peer has gone', async () => {
    await control.addFault({ kind: 'stall', device: 'right', direction: 'in' });
    postWrite(left, right, 32_000);
    await completions(left, 1);
    // Both ends have closed their socket, but the right end does not know yet.
    await right.id.disconnect();
    await quiet(200);
    expect((await control.connections()).map(({ device }) => device)).toContain('right');
    await pair.rig.daemon.stop();
  });

  it('ends with a queue pair that is destroyed', async () => {
    await pair.withFault({ kind: 'delay', ms: 150, device: 'left', direction: 'out' }, async () => {
      postSend(left);
      await completions(left, 1);
      await left.qp.modify({ state: QPState.ERR });
      expect((await completions(right, 1))[0]).toMatchObject({ status: WCStatus.success });
      await right.disconnected();
    });
  });

  it('is bounded: a sender that is not read waits, and everything arrives', async () => {
    const size = 32_000;
    let [posted, done] = [0, 0];
    await pair.withFault({ kind: 'stall', device: 'right', direction: 'in' }, async () => {
      const waits = async (): Promise<boolean> => {
        const signal = AbortSignal.timeout(400);
        const found = await left.cq.wait({ signal }).catch(() => []);
        done += found.length;
        return found.length === 0;
      };
      do {
        for (; posted - done < 32; posted += 1) postWrite(left, right, size);
      } while (!(await waits()) && posted * size < 64_000_000);
    });
    expect(posted * size).toBeLessThan(64_000_000);
    await completions(left, posted - done);
    await expectArrives();
  });
});

describe('a fault', () => {
  it('is in the log, with its seed and its effect, and in the status', async () => {
    const spec: FaultSpec = { kind: 'errno', errno: 'EIO', verb: 'queryQP', probability: 0.5 };
    await pair.withFault(spec, async (fault) => {
      expect((await control.status()).faults).toBe(1);
      const there = pair.rig.log.find((line) => line.includes(`fault ${fault.id} added`));
      expect(there).toContain(`seed\\":${fault.spec.seed}`);
    });
    expect((await control.status()).faults).toBe(0);
    expect(pair.rig.log.join()).toContain(' removed: fired on 0 of 0 matches');
  });
});

describe('reset', () => {
  it('removes faults and reports how many', async () => {
    await control.addFault({ kind: 'stall' });
    await control.addFault({ kind: 'port-down' });
    expect(await control.reset()).toMatchObject({ faults: 2 });
    expect(await control.faults()).toEqual([]);
    expect(await control.reset()).toMatchObject({ faults: 0 });
  });
});

it('limits the number of faults', async () => {
  const { faults } = pair.rig.daemon.host;
  const delay: FaultSpec = { kind: 'delay', ms: 1, qp: 0xff_ffff };
  while (faults.injector.faults.length < 1_024) faults.add(delay, undefined);
  await expect(control.addFault(delay)).rejects.toEqual(failure('ENOMEM', 'remove some'));
  await control.removeFaults();
  await control.addFault(delay);
});
