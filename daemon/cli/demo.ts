/**
 * `npm run demo`: two RNICs in this process, one connection, and the wire traffic of each verb, line
 * by line, up to the Terminate caused by a write to an invalidated STag.
 *
 * Exits with status 0 only if every step succeeded.
 */
import {
  Access,
  type ConnectionParts,
  type CQ,
  connect,
  incRkey,
  listen,
  type MR,
  MWType,
  SendFlag,
  type SendWR,
  VerbsError,
  type WC,
  WC_STATUS_TEXT,
  WCFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#verbs-api/index';
import { failureText } from '../console/failure.ts';
import { endOnClosedPipe, STANDARD_OUTPUT } from '../console/output.ts';
import { createEmbedded } from '../embedded/embedded-provider.ts';
import { WireTrace } from './traffic/wire-trace.ts';

const LEFT_ADDRESS = '127.0.0.2';
const RIGHT_ADDRESS = '127.0.0.3';
const REGION_BYTES = 4096;
const STEP_TIMEOUT_MS = 10_000;
/** Messages that must have been on the wire by the end. */
const MESSAGES = ['Send', 'Write', 'Read Request', 'Read Response', 'Send with Invalidate'];

const carried: string[] = [];
const failures: string[] = [];

function say(who: string, text: string): void {
  STANDARD_OUTPUT.line(`${who.padEnd(14)} ${text}`);
}

function step(title: string): void {
  STANDARD_OUTPUT.line(`\n${title}`);
}

function expect(what: string, holds: boolean): void {
  say(holds ? '  ok' : '  FAILED', what);
  if (!holds) failures.push(what);
}

/** One end of the connection: posts, and prints its posts and completions. */
class End {
  readonly #name: string;
  readonly #parts: ConnectionParts;
  readonly region: MR;

  constructor(name: string, parts: ConnectionParts, region: MR) {
    this.#name = name;
    this.#parts = parts;
    this.region = region;
  }

  get parts(): ConnectionParts {
    return this.#parts;
  }

  post(text: string, wr: SendWR): void {
    say(this.#name, `WQE  ${text}`);
    this.#parts.qp.postSend({ ...wr, flags: (wr.flags ?? 0) | SendFlag.signaled });
  }

  receive(): void {
    this.#parts.qp.postRecv({ sgList: [this.region.sge(REGION_BYTES - 64, 64)] });
  }

  /** Prints and returns the next completion; TimeoutError if there is none in time. */
  async complete(): Promise<WC> {
    const cq: CQ = this.#parts.cq;
    const [wc] = await cq.wait({ max: 1, signal: AbortSignal.timeout(STEP_TIMEOUT_MS) });
    if (wc === undefined) throw new VerbsError('EIO', 'no completion arrived');
    say(this.#name, `CQE  ${completionText(wc)}`);
    return wc;
  }
}

function completionText(wc: WC): string {
  const name = Object.entries(WCOpcode).find(([, number]) => number === wc.opcode)?.[0];
  const invalidated =
    (wc.wcFlags & WCFlag.withInv) === 0 ? '' : `, invalidated ${hex(wc.invalidatedRkey)}`;
  return `${name}: ${WC_STATUS_TEXT[wc.status]}, ${wc.byteLen} bytes${invalidated}`;
}

function hex(stag: number): string {
  return `0x${stag.toString(16).padStart(8, '0')}`;
}

async function showSend(left: End, right: End): Promise<void> {
  step('Send: the payload goes where the peer posted a receive');
  const text = new TextEncoder().encode('hello, RNIC');
  left.post('Send of 11 bytes', {
    opcode: WROpcode.send,
    flags: SendFlag.inline,
    inlineData: text,
  });
  await left.complete();
  const wc = await right.complete();
  const got = right.region.buffer.subarray(REGION_BYTES - 64, REGION_BYTES - 64 + wc.byteLen);
  expect('the text arrived', Buffer.from(got).equals(text));
}

async function showWindow(right: End): Promise<number> {
  step('Bind: the right RNIC opens a window on 256 bytes of its memory');
  const window = await right.parts.pd.allocMW(MWType.type2);
  const rkey = incRkey(window.rkey);
  right.post(`Bind of STag ${hex(rkey)}`, {
    opcode: WROpcode.bindMW,
    bind: {
      rkey,
      lkey: right.region.lkey,
      addr: right.region.address,
      length: 256,
      access: Access.remoteWrite | Access.remoteRead,
    },
  });
  const wc = await right.complete();
  expect('the window is bound', wc.status === WCStatus.success);
  return rkey;
}

async function showWriteAndRead(left: End, right: End, rkey: number): Promise<void> {
  step('RDMA Write: the payload goes straight into the window; the peer does nothing');
  left.region.buffer.fill(0x5a, 0, 100);
  const remote = { remoteAddr: right.region.address, rkey };
  left.post(`RDMA Write of 100 bytes to STag ${hex(rkey)}`, {
    opcode: WROpcode.rdmaWrite,
    sgList: [left.region.sge(0, 100)],
    ...remote,
  });
  await left.complete();

  step('RDMA Read: the same bytes back, from the window to another place');
  left.post(`RDMA Read of 100 bytes from STag ${hex(rkey)}`, {
    opcode: WROpcode.rdmaRead,
    sgList: [left.region.sge(1000, 100)],
    ...remote,
  });
  await left.complete();
  const there = right.region.buffer.subarray(0, 100);
  const back = left.region.buffer.subarray(1000, 1100);
  expect(
    'the window holds what was written',
    there.every((byte) => byte === 0x5a),
  );
  expect(
    'the read brought it back',
    back.every((byte) => byte === 0x5a),
  );
}

async function showInvalidate(left: End, right: End, rkey: number): Promise<void> {
  step('Send with Invalidate: a message that also invalidates the window');
  left.post(`Send with Invalidate of STag ${hex(rkey)}`, {
    opcode: WROpcode.sendWithInv,
    flags: SendFlag.inline,
    inlineData: new TextEncoder().encode('done'),
    invalidateRkey: rkey,
  });
  await left.complete();
  const wc = await right.complete();
  expect('the STag was invalidated', wc.invalidatedRkey === rkey);
}

async function showTerminate(left: End, right: End, rkey: number): Promise<void> {
  step('Terminate: the peer refuses a write to the invalidated window');
  const before = Buffer.from(right.region.buffer);
  left.region.buffer.fill(0xee, 0, 100);
  left.post(`RDMA Write of 100 bytes to STag ${hex(rkey)}`, {
    opcode: WROpcode.rdmaWrite,
    sgList: [left.region.sge(0, 100)],
    remoteAddr: right.region.address,
    rkey,
  });
  const wc = await right.complete();
  expect('posted receives are flushed', wc.status === WCStatus.wrFlushErr);
  expect('no byte was placed', before.equals(right.region.buffer));
}

async function demo(): Promise<void> {
  const tap = new WireTrace((direction, text) => {
    carried.push(text);
    say(direction === 'outbound' ? '  left -> right' : '  right -> left', text);
  });
  await using leftRnic = await createEmbedded({
    devices: [{ name: 'left', addresses: [LEFT_ADDRESS] }],
    observer: { tap },
  });
  await using rightRnic = await createEmbedded({
    devices: [{ name: 'right', addresses: [RIGHT_ADDRESS] }],
  });
  step(`Connect: RNIC left at ${LEFT_ADDRESS}, RNIC right at ${RIGHT_ADDRESS}, over TCP`);
  await using listener = await listen(rightRnic, { host: RIGHT_ADDRESS });
  const ends: { left?: End; right?: End } = {};
  const accepting = (async () => {
    for await (const request of listener) {
      return await request.accept({
        prepare: async (parts) => {
          ends.right = await prepared('right', parts);
        },
      });
    }
    throw new VerbsError('EIO', 'the listener closed');
  })();
  await using connection = await connect(leftRnic, {
    host: RIGHT_ADDRESS,
    port: listener.address.port,
    prepare: async (parts) => {
      ends.left = await prepared('left', parts);
    },
  });
  await using accepted = await accepting;
  const { left, right } = ends;
  if (left === undefined || right === undefined) throw new VerbsError('EIO', 'not connected');

  await showSend(left, right);
  const rkey = await showWindow(right);
  await showWriteAndRead(left, right, rkey);
  await showInvalidate(left, right, rkey);
  await showTerminate(left, right, rkey);
  const signal = AbortSignal.timeout(STEP_TIMEOUT_MS);
  await Promise.all([connection.disconnected({ signal }), accepted.disconnected({ signal })]);
  for (const message of [...MESSAGES, 'Terminate']) {
    expect(
      `the wire carried a ${message}`,
      carried.some((text) => text.startsWith(`${message} `)),
    );
  }
}

async function prepared(name: string, parts: ConnectionParts): Promise<End> {
  const region = await parts.pd.allocMR(REGION_BYTES, Access.localWrite | Access.mwBind);
  const end = new End(name, parts, region);
  for (let count = 0; count < 4; count++) end.receive();
  return end;
}

async function main(): Promise<void> {
  endOnClosedPipe();
  try {
    await demo();
  } catch (error) {
    failures.push(failureText(error));
  }
  if (failures.length === 0) {
    STANDARD_OUTPUT.line('\nDone. Next: `npm start`, then `npx iwarpd rping`.');
    return;
  }
  STANDARD_OUTPUT.note(`demo: ${failures.join('; ')}`);
  process.exitCode = 1;
}

await main();
