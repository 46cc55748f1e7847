/** `iwarpd capture` and `trace` on live traffic, verified by Wireshark and our own decoder. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CommandFolder, type RunningCommand, runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { dissect } from './tshark.ts';

const SERVER = '127.0.0.3';
const MEGA = 1_000_000;

const folder = new CommandFolder();
let socket: string;
let port: string;

/** Starts an rping server on one device; `-P` serves any number of clients. */
async function rpingServer(): Promise<RunningCommand> {
  const words = ['rping', '-s', '-P', '-d', '-a', SERVER, '-p', port, '--socket', socket];
  const server = folder.start(words);
  await server.until(/listening/, 'stderr');
  return server;
}

function rpingClient(count: number): RunningCommand {
  const words = ['-a', SERVER, '-p', port, '-C', String(count), '--socket', socket];
  return folder.start(['rping', '-c', '-v', ...words]);
}

function capture(file: string, words: readonly string[] = []): RunningCommand {
  return folder.start(['capture', '-w', file, '--socket', socket, ...words]);
}

async function ended(command: RunningCommand) {
  command.signal('SIGINT');
  return await command.end();
}

beforeEach(async () => {
  socket = folder.file('d/s');
  port = String(await freePort(SERVER));
  await folder.daemon(socket, ['--device', 'a=127.0.0.2', '--device', `b=${SERVER}`]);
});

afterEach(() => folder.clean());

describeWith(['tshark'], 'live captures', () => {
  it('are dissected by Wireshark from the MPA Request on, every CRC good', async () => {
    const file = folder.file('all.pcapng');
    await rpingServer();
    const capturing = capture(file);
    await capturing.until(/capturing to/, 'stderr');
    expect((await rpingClient(3).end()).status).toBe(0);
    const { status, stderr } = await ended(capturing);
    expect([status, stderr]).toEqual([
      0,
      expect.stringMatching(/all\.pcapng: 1 connection, 0\.0 MiB\n/),
    ]);
    const { fpdus, malformed, crcGood, crcBad } = await dissect(file);
    expect(malformed).toEqual([]);
    expect(crcBad).toBe(0);
    // Three pings: two Sends each way, a Read with its response, a Write; an RTR, and farewells.
    expect(fpdus.length).toBeGreaterThanOrEqual(3 * 7);
    expect(crcGood).toBe(fpdus.length);
    const decoded = await runCommand(['decode', file]);
    expect(decoded.stderr).toContain(`1 iWARP connection, ${fpdus.length} FPDUs, 0 errors`);
  });

  it('show a connection that was open before, from its startup frames on', async () => {
    const file = folder.file('later.pcapng');
    await rpingServer();
    const client = rpingClient(10 * MEGA);
    await client.until(/ping data: rdma-ping-50:/);
    const status = await runCommand(['status', '--json', '--socket', socket]);
    expect(JSON.parse(status.stdout).clients).toHaveLength(2);
    const capturing = capture(file, ['--port', port, '--address', SERVER]);
    await capturing.until(/capturing to/, 'stderr');
    const seen = client.stdout.length;
    await expect.poll(() => client.stdout.length).toBeGreaterThan(seen + 5000);
    await ended(capturing);
    await client.kill();
    const { fpdus, malformed, crcGood } = await dissect(file);
    expect(malformed).toEqual([]);
    expect(fpdus.length).toBeGreaterThan(100);
    expect(crcGood).toBe(fpdus.length);
  });

  it('record only the selected connection', async () => {
    const file = folder.file('none.pcapng');
    await rpingServer();
    const capturing = capture(file, ['--port', '1']);
    await capturing.until(/capturing to/, 'stderr');
    await rpingClient(2).end();
    const { stderr } = await ended(capturing);
    expect(stderr).toContain('none.pcapng: 0 connections');
  });

  it('end with one line when the disk is full and disturb nothing else', async () => {
    await rpingServer();
    const finished = await capture('/dev/full').end();
    expect(finished.status).toBe(1);
    expect(finished.stderr).toMatch(
      /^iwarpd: cannot write \/dev\/full: no space left on device \(ENOSPC\)$/m,
    );
    expect((await rpingClient(3).end()).status).toBe(0);
  });

  it('end with the daemon, and keep what was written', async () => {
    const file = folder.file('cut.pcapng');
    const daemonSocket = folder.file('e/s');
    const daemon = await folder.daemon(daemonSocket);
    const capturing = folder.start(['capture', '-w', file, '--socket', daemonSocket]);
    await capturing.until(/capturing to/, 'stderr');
    daemon.signal('SIGTERM');
    const { status, stderr } = await capturing.end();
    expect(status).toBe(1);
    expect(stderr).toMatch(/iwarpd: the daemon ended or closed the connection \(EIO\)/);
    expect((await dissect(file)).fpdus).toEqual([]);
  });

  it('need a daemon, a connected queue pair and a file that can be written', async () => {
    const nowhere = ['--socket', folder.file('nobody')];
    const absent = await runCommand(['capture', '-w', folder.file('x'), ...nowhere]);
    expect(absent.stderr).toMatch(/^iwarpd: no daemon at /m);
    // A capture that cannot start leaves an earlier file as it was.
    expect(existsSync(folder.file('x'))).toBe(false);
    const queuePair = await capture(folder.file('x'), ['--qp', '12345']).end();
    expect(queuePair.stderr).toContain('iwarpd: queue pair 12345 has no connection');
    const folderPath = await capture(folder.path).end();
    expect(folderPath.stderr).toMatch(
      /cannot write \S+: illegal operation on a directory \(EISDIR\)/,
    );
    expect([absent.status, queuePair.status, folderPath.status]).toEqual([1, 1, 1]);
  });
});

describeWith([], 'live traces', () => {
  it('print a line for each frame, FPDU and end', async () => {
    await rpingServer();
    const trace = folder.start(['trace', '--only', 'mpa,fpdu,end', '--socket', socket]);
    await trace.until(/tracing/, 'stderr');
    await rpingClient(1).end();
    await trace.until(/FIN\n[\s\S]*FIN/);
    const { stdout } = await ended(trace);
    const texts = stdout
      .trimEnd()
      .split('\n')
      .map((line) => /^[\d:.]{12} {2}\S+ > \S+ {2}(\w+ ?\w*)/.exec(line)?.[1]);
    expect(texts.slice(0, 4)).toEqual(['MPA Request', 'MPA Reply', 'Write STag', 'Send QN']);
    expect(texts.filter((text) => text === 'FIN')).toHaveLength(2);
  });

  it('print JSON, and stop when their reader has gone', async () => {
    await rpingServer();
    const trace = folder.start(['trace', '--json', '--socket', socket]);
    await trace.until(/tracing/, 'stderr');
    const client = rpingClient(10 * MEGA);
    await trace.until(/\n/);
    expect(JSON.parse(trace.stdout.slice(0, trace.stdout.indexOf('\n')))).toMatchObject({
      time: expect.stringMatching(/^\d{4}-.*Z$/),
      kind: 'mpa',
    });
    trace.closeStdout();
    expect((await trace.end()).status).toBe(0);
    await client.kill();
  });

  it('make files that stay readable while they are written', async () => {
    const file = folder.file('growing.pcapng');
    await rpingServer();
    const capturing = capture(file);
    await capturing.until(/capturing to/, 'stderr');
    await rpingClient(2).end();
    await expect.poll(() => readFileSync(file).length).toBeGreaterThan(2000);
    const copy = folder.file('copy.pcapng');
    writeFileSync(copy, readFileSync(file));
    expect((await runCommand(['decode', copy])).stderr).toMatch(/1 iWARP connection/);
  });
});
