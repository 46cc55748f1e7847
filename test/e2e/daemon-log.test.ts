/** If nothing reads the log, or it cannot be written, the daemon serves and exits as usual. */
import { execFileSync } from 'node:child_process';
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Provider } from '#contract/verbs/provider';
import { listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { DaemonProcess } from '../support/daemon-process.ts';
import { bytesOf } from '../support/hex.ts';
import { IpcClient } from '../support/ipc-client.ts';
import { emitFpdu, mpaRequest } from '../support/mpa-frames.ts';
import { RawPeer } from '../support/raw-peer.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const SILENT_CONNECTIONS = 1_500;
/** Fewer than a listener's backlog: a connection that the kernel drops would never end. */
const SILENT_AT_ONCE = 250;
const BAD_GREETINGS = 1_000;
/** A name that makes each line of the log long. */
const DEVICE = { name: 'rnic0', addresses: ['127.0.0.1'], wire: { startupTimeoutMicros: 300_000 } };

let folder: string;
let daemon: DaemonProcess | undefined;
let descriptors: number[];

beforeEach(() => {
  folder = temporaryFolder();
  descriptors = [];
});

afterEach(async () => {
  await daemon?.clean();
  daemon = undefined;
  for (const fd of descriptors) closeSync(fd);
});

/** A pipe; writing to it blocks when it is full. */
function pipe(): { readonly readEnd: number; readonly writeEnd: number } {
  const path = join(folder, 'log');
  execFileSync('mkfifo', [path]);
  const readEnd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const writeEnd = openSync(path, constants.O_WRONLY);
  descriptors.push(readEnd, writeEnd);
  return { readEnd, writeEnd };
}

/** The contents of the pipe. */
function drained(fd: number): string {
  const buffer = Buffer.alloc(1 << 20);
  let text = '';
  for (;;) {
    try {
      text += buffer.toString('utf8', 0, readSync(fd, buffer));
    } catch {
      return text;
    }
  }
}

async function start(stderr: number): Promise<DaemonProcess> {
  daemon = await DaemonProcess.start({ devices: [DEVICE] }, stderr);
  return daemon;
}

/** Connects peers that send nothing, and waits until the daemon has ended all of them. */
async function silentPeers(provider: Provider): Promise<void> {
  const listener = await listen(provider, { host: '127.0.0.1' });
  const { port } = listener.address;
  const all = Array.from({ length: SILENT_CONNECTIONS }).values();
  const oneByOne = async (): Promise<void> => {
    for (const _ of all) {
      const socket = connectTcp(port, '127.0.0.1').resume();
      socket.on('error', () => undefined);
      await new Promise((resolve) => socket.on('close', resolve));
    }
  };
  await Promise.all(Array.from({ length: SILENT_AT_ONCE }, oneByOne));
  await listener.close();
}

async function badGreetings(path: string): Promise<void> {
  for (let count = 0; count < BAD_GREETINGS; count += 1) {
    const client = new IpcClient(path);
    client.send(new Uint8Array(64).fill(0x41));
    await client.closed();
  }
}

async function expectServing({ socketPath }: DaemonProcess): Promise<void> {
  const provider = await connectDaemon({ socketPath });
  const context = await provider.open();
  const pd = await context.allocPD();
  await pd.allocMR(4096, 1);
  await provider.close();
}

describe('the line of a Terminate', () => {
  it('names device, queue pair and peer', async () => {
    const running = await DaemonProcess.start({ devices: [DEVICE] });
    daemon = running;
    const provider = await connectDaemon({ socketPath: running.socketPath });
    const listener = await listen(provider, { host: '127.0.0.1' });
    const peer = await RawPeer.dial(listener.address.port);
    const accepted = listener[Symbol.asyncIterator]().next();
    peer.say(mpaRequest());
    const request = (await accepted).value;
    const connection = await request.accept();
    await peer.receive(24);
    // A Write of no bytes, then an unknown opcode.
    peer.say(emitFpdu(bytesOf('c1 40 00*12')), emitFpdu(bytesOf('41 4f 00*4 00*4 00000001 00*4')));
    await expect.poll(() => running.log).toContain('sent a Terminate');
    const line = running.log.split('\n').find((each) => each.includes('sent a Terminate')) ?? '';
    expect(JSON.parse(line)).toMatchObject({
      device: 'rnic0',
      qpn: connection.qp.qpNum,
      peer: `127.0.0.1 port ${peer.localPort}`,
    });
    peer.destroy();
    await provider.close();
  });
});

describe('the log', () => {
  it('delays nothing without a reader, stays bounded, and reports dropped lines', async () => {
    const { readEnd, writeEnd } = pipe();
    const running = await start(writeEnd);
    const provider = await connectDaemon({ socketPath: running.socketPath });
    await silentPeers(provider);
    await badGreetings(running.socketPath);
    await expectServing(running);
    const text = drained(readEnd);
    expect(text).toContain('refused a connection');
    expect(text.length).toBeLessThan(256 * 1024);
    // The summaries appear once there is room, perhaps in pieces.
    let rest = '';
    await expect
      .poll(() => (rest += drained(readEnd)))
      .toMatch(/"similar":\d{3,},"msg":"\d{3,} similar messages dropped"/);
    await provider.close();
    expect(await running.end('SIGTERM')).toBe(0);
  });

  it('is lost on a full disk, and the daemon shuts down cleanly', async () => {
    const fd = openSync('/dev/full', 'w');
    descriptors.push(fd);
    const running = await start(fd);
    await badGreetings(running.socketPath);
    await expectServing(running);
    expect(await running.end('SIGTERM')).toBe(0);
  });

  it('is lost once its reader is gone, and the daemon shuts down cleanly', async () => {
    const { writeEnd } = pipe();
    const running = await start(writeEnd);
    for (const fd of descriptors.splice(0)) closeSync(fd);
    await badGreetings(running.socketPath);
    await expectServing(running);
    expect(await running.end('SIGTERM')).toBe(0);
  });
});
