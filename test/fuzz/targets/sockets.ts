/**
 * Hostile input over sockets: clients of a whole daemon in every role, and raw TCP peers of a real
 * host. Slower than the targets without sockets, but the only ones that cover the whole path.
 */
import { connect as connectSocket, type Socket } from 'node:net';
import { emitFrame, emitHello, FrameType, Role } from '#contract/protocol/ipc-frames';
import { encodeValue } from '#contract/protocol/ipc-value';
import { Access, CMEventType } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import type { Provider } from '#contract/verbs/provider';
import type { HostCmEvent, HostId } from '#daemon/host/host-id';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { QP } from '#daemon/rnic/queue-pair';
import { DaemonRig } from '#test/support/daemon-rig';
import type { Draws } from '#test/support/draws';
import { streamOf } from '#test/support/fpdu-stream';
import { bytesOf, hexOf } from '#test/support/hex';
import { IpcClient } from '#test/support/ipc-client';
import { inPieces, join, mutated, rearranged } from '#test/support/mutate';
import { until } from '#test/support/patience';
import { queueSizes } from '#test/support/queue-sizes';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { SEGMENTS } from '../corpus.ts';
import { LIFE } from '../ipc-commands.ts';
import { canary, claim, type FuzzState, type FuzzTarget, type Outcome } from '../target.ts';

function closed(socket: Socket): Promise<void> {
  if (socket.closed) return Promise.resolve();
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

const FRAMES = LIFE.map((value, index) => emitFrame(FrameType.request, index, encodeValue(value)));
const RECORDS = [
  Uint8Array.of(6, 0, 0, 0, 1, 0, 0, 0),
  new Uint8Array(16),
  new Uint8Array(48),
  new Uint8Array(24).fill(1),
];
const SECONDARY = [Role.doorbell, Role.map, Role.agent] as const;
const ROLES = Object.values(Role);

class DaemonState implements FuzzState {
  readonly #rig: DaemonRig;
  readonly #witness: Provider;
  readonly #clientsBefore: number;
  #inputs = 0;

  private constructor(rig: DaemonRig, witness: Provider, clientsBefore: number) {
    this.#rig = rig;
    this.#witness = witness;
    this.#clientsBefore = clientsBefore;
  }

  static async start(): Promise<DaemonState> {
    const devices = [{ name: 'fuzzed', addresses: ['127.0.0.1'] }];
    // Not `process_vm`: clients name random addresses, which would be this process's memory.
    const rig = await DaemonRig.start({ devices, native: false, memoryTiers: ['agent'] });
    const witness = await connectDaemon({ socketPath: rig.socketPath });
    return new DaemonState(rig, witness, (await rig.daemon.status()).clients.length);
  }

  async run(draws: Draws): Promise<Outcome> {
    const kind = draws.below(8);
    const outcome =
      kind === 0
        ? await this.#greet(draws)
        : kind < 4
          ? await this.#second(draws)
          : await this.#live(draws);
    this.#inputs += 1;
    if (this.#inputs % 50 === 0) await this.#useWitness();
    return outcome;
  }

  async close(): Promise<void> {
    await this.#useWitness();
    const { daemon } = this.#rig;
    const clients = async () => (await daemon.status()).clients.length;
    await until('clients to be gone', async () => (await clients()) === this.#clientsBefore);
    for (const { nic, name } of daemon.host.devices) {
      claim(nic.listQPs().length === 0, `${name} has queue pairs of clients that are gone`);
    }
    await this.#witness.close();
    await this.#rig.stop();
  }

  async #useWitness(): Promise<void> {
    this.#rig.daemon.assertDeepInvariants();
    const context = await this.#witness.open();
    const pd = await context.allocPD();
    const mr = await pd.allocMR(64, Access.localWrite);
    mr.buffer.fill(7);
    claim(
      mr.buffer.every((byte) => byte === 7),
      'memory of the witness changed',
    );
    await context.close();
  }

  #frames(draws: Draws): Uint8Array {
    const list = rearranged(FRAMES.slice(0, draws.below(FRAMES.length)), FRAMES, draws);
    return mutated(join(list), FRAMES, draws, draws.below(4));
  }

  /** A client with hostile requests and a random end. */
  async #live(draws: Draws): Promise<Outcome> {
    const input = this.#frames(draws);
    if (draws.recording) draws.show(hexOf(input));
    const client = await IpcClient.open(this.#rig.socketPath);
    this.#send(client.socket, input, draws);
    await closed(client.socket);
    return 'client';
  }

  /** A client whose second connection is hostile. */
  async #second(draws: Draws): Promise<Outcome> {
    const role = draws.pick(SECONDARY);
    const input = mutated(draws.pick(RECORDS), RECORDS, draws, draws.below(4));
    if (draws.recording) draws.show(`role ${role} ${hexOf(input)}`);
    const client = await IpcClient.open(this.#rig.socketPath);
    const { token } = await client.welcome();
    const second = await IpcClient.open(this.#rig.socketPath, role, token);
    client.send(join(FRAMES.slice(0, draws.below(12))));
    this.#send(second.socket, input, draws);
    await closed(second.socket);
    client.socket.end();
    client.socket.resume();
    await closed(client.socket);
    return `role ${role}`;
  }

  /** A malformed greeting, or one of any role. */
  async #greet(draws: Draws): Promise<Outcome> {
    const hello = emitHello(draws.pick(ROLES), draws.bytes(16));
    const input = join([mutated(hello, FRAMES, draws, draws.below(3)), this.#frames(draws)]);
    if (draws.recording) draws.show(hexOf(input));
    const socket = connectSocket(this.#rig.socketPath);
    socket.on('error', () => undefined);
    this.#send(socket, input, draws);
    await closed(socket);
    return 'greeting';
  }

  #send(socket: Socket, input: Uint8Array, draws: Draws): void {
    socket.resume();
    inPieces(input, draws, (start, end) => void socket.write(input.slice(start, end)));
    if (draws.oneIn(4)) setImmediate(() => socket.destroy());
    else socket.end();
  }
}

/** Clients of a whole daemon. */
export const ipcSocket: FuzzTarget = {
  name: 'ipc-socket',
  about: 'clients of a whole daemon, in every role, over its socket, beside a witness',
  batchInputs: 400,
  weight: 250,
  smokeInputs: 250,
  // Clients whose objects are never freed.
  canary: canary(100, ClientContext.prototype, 'close', () => 0),
  open: () => DaemonState.start(),
};

const REQUESTS = [
  bytesOf('4d504120494420526571204672616d65 00 01 0000'),
  bytesOf('4d504120494420526571204672616d65 40 01 0002 abcd'),
  bytesOf('4d504120494420526571204672616d65 50 02 0004 00080008'),
  bytesOf('4d504120494420526571204672616d65 10 02 0004 8008c008'),
];
const REGION_BYTES = 0x1000;

/** A host that accepts every connection, with registered memory between guards. */
class HostState implements FuzzState {
  readonly #host = new RnicHost({
    system: hostSystem(),
    devices: [{ name: 'fuzzed', addresses: ['127.0.0.1'] }],
  });
  readonly #memory = new Uint8Array(3 * REGION_BYTES).fill(0x5a);
  readonly #listener: HostId;
  readonly #qps = new Map<HostId, QP>();
  readonly #answers: ('accept' | 'reject' | 'ignore')[] = [];
  readonly #streams: readonly Uint8Array[];
  readonly #closers: (() => void)[] = [];
  readonly #makeQP: () => QP;

  constructor() {
    const [device] = this.#host.devices;
    if (device === undefined) throw new Error('the host has a device');
    const { nic } = device;
    const pd = nic.allocPD();
    const every = Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic;
    const mr = nic.regMR(pd, {
      backing: new ViewBacking(this.#memory),
      backingOffset: REGION_BYTES,
      lengthBytes: REGION_BYTES,
      address: 0x1000,
      iova: 0x1000,
      access: every,
      key: undefined,
    });
    const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
    const cq = nic.createCQ({ cqe: 4096, ring, tag: undefined });
    const capabilities = queueSizes(4, 8);
    this.#makeQP = () => {
      const queues = { sendCQ: cq, recvCQ: cq, srq: undefined, sqSigAll: true };
      const qp = nic.createQP(pd, { ...queues, capabilities, ring, tag: undefined });
      const receive = new ReceiveRing(qp.ring, qp.rqOffset, qp.rqCount, 1);
      for (let count = 0; count < 4; count++) {
        receive.post({ wrId: 1n, sgList: [{ addr: 0x1400, length: 64, lkey: mr.lkey }] });
      }
      return qp;
    };
    this.#closers.push(
      () => cq.close(),
      () => mr.close(),
      () => pd.close(),
    );
    const segments = SEGMENTS.map((segment) => {
      const copy = segment.slice();
      const view = new DataView(copy.buffer);
      for (let at = 0; at + 4 <= copy.length; at++) {
        if (view.getUint32(at) === 0x11223344) view.setUint32(at, mr.stag);
      }
      return copy;
    });
    this.#streams = [false, true].flatMap((crc) =>
      [0, 2, 5].map((count) => streamOf(segments.slice(count), false, crc)),
    );
    const { cm } = this.#host;
    this.#host.onCmEvent = (id, event) => this.#act(id, event);
    this.#listener = cm.createId(undefined);
    cm.bindAddr(this.#listener, { address: '127.0.0.1', port: 0 });
    cm.listen(this.#listener, 64);
  }

  async run(draws: Draws): Promise<Outcome> {
    this.#answers.push(draws.oneIn(6) ? (draws.oneIn(2) ? 'reject' : 'ignore') : 'accept');
    const corpus = this.#streams;
    const request = mutated(draws.pick(REQUESTS), REQUESTS, draws, draws.oneIn(4) ? 1 : 0);
    const stream = mutated(draws.pick(corpus), corpus, draws, draws.below(4));
    if (draws.recording) draws.show(`${hexOf(request)} ${hexOf(stream)}`);
    const port = this.#listener.localAddress?.port ?? 0;
    const socket = connectSocket(port, '127.0.0.1');
    socket.on('error', () => undefined);
    let answer = 0;
    const replied = new Promise<void>((resolve) => {
      socket.on('data', (chunk) => {
        answer += chunk.length;
        resolve();
      });
      socket.once('close', () => resolve());
    });
    const ending = draws.below(4);
    inPieces(request, draws, (start, end) => void socket.write(request.slice(start, end)));
    // Bytes after a Request, before its Reply, end the connection.
    if (!draws.oneIn(8))
      await Promise.race([replied, new Promise((resolve) => setTimeout(resolve, 20))]);
    inPieces(stream, draws, (start, end) => void socket.write(stream.slice(start, end)));
    if (ending === 0) setImmediate(() => socket.resetAndDestroy());
    else socket.end();
    // A peer that does not close waits for our close timeout.
    const patience = setTimeout(() => socket.destroy(), 200);
    await closed(socket);
    clearTimeout(patience);
    this.#host.assertDeepInvariants();
    this.#check();
    return answer === 0 ? 'silent' : answer > 30 ? 'answered' : 'replied';
  }

  async close(): Promise<void> {
    const { cm } = this.#host;
    for (const id of [...this.#qps.keys()]) this.#end(id);
    cm.destroy(this.#listener);
    await this.#host.reset();
    claim(this.#host.connections().length === 0, 'connections are left');
    for (const { nic } of this.#host.devices) {
      for (const qp of nic.listQPs()) qp.close(this.#host.now());
    }
    this.#host.drain();
    for (const close of this.#closers) close();
    await this.#host.close();
    this.#check();
  }

  #act(id: HostId, event: HostCmEvent): void {
    if (event.type === CMEventType.connectRequest) this.#answer(id);
    else if (event.type === CMEventType.disconnected || event.type === CMEventType.connectError) {
      this.#end(id);
    }
  }

  #answer(id: HostId): void {
    const { cm } = this.#host;
    const answer = this.#answers.shift() ?? 'accept';
    const qp = this.#makeQP();
    this.#qps.set(id, qp);
    try {
      if (answer === 'reject') cm.reject(id, new Uint8Array(3));
      else if (answer === 'accept') {
        cm.accept(id, qp, {
          privateData: new Uint8Array(2),
          initiatorDepth: undefined,
          responderResources: undefined,
          wire: undefined,
        });
      }
    } catch (error) {
      if (!isVerbsError(error)) throw error;
    }
  }

  #end(id: HostId): void {
    const qp = this.#qps.get(id);
    this.#qps.delete(id);
    this.#host.cm.destroy(id);
    qp?.close(this.#host.now());
    this.#host.drain();
  }

  #check(): void {
    const intact = (from: number, to: number): boolean =>
      this.#memory.subarray(from, to).every((byte) => byte === 0x5a);
    claim(intact(0, REGION_BYTES), 'memory before the region changed');
    claim(intact(2 * REGION_BYTES, 3 * REGION_BYTES), 'memory past the region changed');
  }
}

/** Raw TCP peers of a real host. */
export const wireSocket: FuzzTarget = {
  name: 'wire-socket',
  about: 'raw TCP peers of a real host: connection manager, conduits, queue pairs and all',
  batchInputs: 400,
  weight: 250,
  smokeInputs: 250,
  canary: canary(100, ViewBacking.prototype, 'write', function (write, ...given) {
    const done = write(...given);
    if (this.view.length === 3 * REGION_BYTES) this.view[2 * REGION_BYTES] = 0;
    return done;
  }),
  open: () => new HostState(),
};
