import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { COMMAND_SCHEMAS, isCommandName } from '../../daemon/ipc/command-schemas.ts';
import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import {
  CLIENT_FRAME_MAX_BYTES,
  emitFrame,
  FrameReader,
  FrameType,
  Role,
} from '../../verbs-api/contract/ipc-frames.ts';
import {
  decodeValue,
  encodeValue,
  IpcFormatError,
  type IpcValue,
} from '../../verbs-api/contract/ipc-value.ts';
import type { Provider } from '../../verbs-api/contract/provider.ts';
import { DaemonRig } from '../support/daemon-rig.ts';
import { IpcClient } from '../support/ipc-client.ts';
import { fuzz } from './octet-fuzzer.ts';

const octets = Uint8Array.of(1, 2, 3);
const address = { address: '127.0.0.1', port: 0 };
const capabilities = {
  maxSendWr: 4,
  maxRecvWr: 4,
  maxSendSge: 1,
  maxRecvSge: 1,
  maxInlineData: 0,
};
const region = { pd: 2, lengthBytes: 64, address: undefined, iova: undefined, key: undefined };
const parameters = {
  privateData: octets,
  initiatorDepth: 1,
  responderResources: undefined,
  wire: { crc: true, fpduSize: 'large' },
};

/** A life of a client, one command of nearly every kind; the handles are those it gets. */
const LIFE: readonly IpcValue[] = [
  ['openDevice', { name: undefined }],
  ['allocPD', { context: 1 }],
  ['createCompChannel', { context: 1 }],
  ['createCQ', { context: 1, cqe: 16, channel: 3 }],
  ['createSRQ', { pd: 2, maxWr: 4, maxSge: 1, srqLimit: 0 }],
  ['createQP', { pd: 2, sendCQ: 4, recvCQ: 4, srq: 5, capabilities, sqSigAll: true }],
  ['allocBuffer', { lengthBytes: 4096 }],
  ['regMR', { ...region, source: { kind: 'buffer', buffer: 7, offset: 0 }, access: 7 }],
  ['regMR', { ...region, source: { kind: 'process', address: 4096n }, access: 1 }],
  ['allocMW', { pd: 2, type: 1 }],
  ['cmCreateId', {}],
  ['cmBindAddr', { id: 10, address }],
  ['cmListen', { id: 10, backlog: 1 }],
  ['cmCreateId', {}],
  ['cmResolveAddr', { id: 11, destination: address, source: address, timeoutMs: 10 }],
  ['cmConnect', { id: 11, qp: 6, ...parameters }],
  ['cmAccept', { id: 11, qp: 6, ...parameters }],
  ['cmReject', { id: 11, privateData: octets }],
  ['cmDisconnect', { id: 11 }],
  ['modifyQP', { qp: 6, state: 6 }],
  ['queryQP', { qp: 6 }],
  ['modifySRQ', { srq: 5, srqLimit: 2 }],
  ['destroyQP', { qp: 6 }],
  ['deregMR', { mr: 8 }],
  ['freeBuffer', { buffer: 7 }],
  ['closeDevice', { context: 1 }],
];
const values = LIFE.map(encodeValue);
const frames = values.map((value, index) => emitFrame(FrameType.request, index, value));
/** Whole lives, so that mutations meet clients that have objects. */
const lives = [3, 8, 12, frames.length].map((length) => {
  return Uint8Array.from(frames.slice(0, length).flatMap((frame) => [...frame]));
});

describe('fuzzing what clients send', () => {
  it('canary: a planted fault is found, so that silence means something', () => {
    const finding = fuzz({
      corpus: values,
      rounds: 20_000,
      target(input) {
        const text = refusal(input);
        if (text === 'text is not UTF-8') throw new Error('planted');
      },
    });
    expect(finding?.text).toBe('planted');
  });

  it('values and requests: refused or understood, and never another exception', () => {
    const finding = fuzz({
      corpus: values,
      rounds: 20_000,
      target(input) {
        const value = decoded(input);
        const [name, request] = Array.isArray(value) ? value : [];
        if (isCommandName(name)) COMMAND_SCHEMAS[name].safeParse(request);
        // What was understood can be said again.
        if (value !== undefined) decodeValue(encodeValue(value));
      },
    });
    expect(finding).toBeUndefined();
  });

  it('frames: refused or cut the same way in any pieces, and nothing above the limit is kept', () => {
    const finding = fuzz({
      corpus: lives,
      rounds: 5_000,
      target(input, prng) {
        const whole: string[] = [];
        const pieces: string[] = [];
        const outcome = read(input, whole, () => input.length);
        expect(read(input, pieces, () => prng.between(1, 100))).toBe(outcome);
        expect(pieces).toEqual(whole);
      },
    });
    expect(finding).toBeUndefined();
  });
});

/** Cuts octets into frames; returns what refused them, if anything did. */
function read(input: Uint8Array, seen: string[], pieceBytes: () => number): string | undefined {
  const reader = new FrameReader(CLIENT_FRAME_MAX_BYTES, ({ type, id, payload }) => {
    seen.push(`${type} ${id} ${payload.length}`);
  });
  try {
    for (let at = 0; at < input.length; ) {
      const end = Math.min(at + pieceBytes(), input.length);
      reader.push(input.subarray(at, end));
      at = end;
    }
    return undefined;
  } catch (error) {
    if (!(error instanceof IpcFormatError)) throw error;
    return error.message;
  }
}

function decoded(input: Uint8Array): IpcValue {
  return refusal(input) === undefined ? decodeValue(input) : undefined;
}

/** Why a value is refused, or undefined when it is not. */
function refusal(input: Uint8Array): string | undefined {
  try {
    decodeValue(input);
    return undefined;
  } catch (error) {
    if (!(error instanceof IpcFormatError)) throw error;
    return error.message;
  }
}

describe('fuzzing a daemon', () => {
  let rig: DaemonRig;
  let witness: Provider;

  beforeAll(async () => {
    rig = await DaemonRig.start({ devices: [{ name: 'fuzzed', addresses: ['127.0.0.1'] }] });
    witness = await connectDaemon({ socketPath: rig.socketPath });
  });
  afterAll(async () => {
    await witness.close();
    await rig.stop();
  });

  /** Inputs of a run, made by the fuzzer. */
  function inputs(corpus: readonly Uint8Array[], rounds: number): Uint8Array[] {
    const made: Uint8Array[] = [];
    fuzz({ corpus, rounds, target: (input) => void made.push(input.slice()) });
    return made;
  }

  async function expectUnharmed(): Promise<void> {
    const context = await witness.open();
    const pd = await context.allocPD();
    await pd.allocMR(64, 1);
    await context.close();
    await expect.poll(() => rig.daemon.status().clients.length).toBe(1);
  }

  it('control connections: it goes on, and keeps nothing of those that ended', async () => {
    for (const input of inputs(lives, 400)) {
      const client = await IpcClient.open(rig.socketPath);
      client.send(input);
      client.socket.end();
      client.socket.resume();
      await client.closed();
    }
    await expectUnharmed();
  });

  it.each([
    ['doorbells', Role.doorbell],
    ['mapping requests', Role.map],
    ['agent replies', Role.agent],
  ])('%s of a client that has objects', async (_what, role) => {
    const records = [Uint8Array.of(6, 0, 0, 0, 1, 0, 0, 0), new Uint8Array(16), new Uint8Array(48)];
    const life = lives[1] ?? new Uint8Array(0);
    for (const input of inputs(records, 100)) {
      const client = await IpcClient.open(rig.socketPath);
      const { token } = await client.welcome();
      const second = await IpcClient.open(rig.socketPath, role, token);
      client.send(life);
      second.send(input);
      second.socket.end();
      await second.closed();
      client.socket.end();
      await client.closed();
    }
    await expectUnharmed();
  });
});
