/**
 * Unmodified rdma-core programs, one end on iwarpd, the other on Linux's siw, in both directions.
 *
 * With CRCs off, our end runs on the host, behind QEMU's proxy. With CRCs on, it runs inside the
 * guest, next to siw, since siw rejects a correct CRC if the proxy has split the trailer. perftest
 * runs through the proxy with `-R`, which exchanges its parameters over the RDMA connection, so it
 * needs only one port. Both of its ends busy-poll; in the guest they run under nice, or they would
 * starve the daemon of the only processor.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { CommandFolder, type RunningCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { patience, programSeconds, TEST_MS } from '../support/patience.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { daemonEnvironment } from './kernel-peer/daemon-environment.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_ADDRESS,
  GUEST_START_TIMEOUT_MS,
  type Guest,
  type GuestProcess,
  HOST_ADDRESS,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import { ATTEMPTS, perftestWasTooSlow, untilFast } from './perftest-patience.ts';
import { type EndedRping, endOf, endOfCommand } from './rping-ends.ts';

const PORT = 7174;
const GUEST_SOCKET = '/run/iwarpd-across/s';
/** Time limit of programs, which wait forever after some failures. */
const PROGRAM_SECONDS = programSeconds();
const TEST_TIMEOUT_MS = patience(ATTEMPTS * TEST_MS);

/** A program's server and client. Both take a port, and the client also an address. */
interface Pair {
  readonly title: string;
  readonly server: (port: number) => readonly string[];
  readonly client: (port: number, address: string) => readonly string[];
  /** The client's last line, if any. */
  readonly done?: RegExp;
  readonly perftest?: boolean;
}

function perftest(name: string, words: readonly string[], result: RegExp): Pair {
  const all = [name, '-R', '-F', ...words];
  return {
    title: all.join(' '),
    server: (port) => [...all, '-p', String(port)],
    client: (port, address) => [...all, '-p', String(port), address],
    done: result,
    perftest: true,
  };
}

function rping(words: readonly string[]): Pair {
  return {
    title: ['rping', ...words].join(' '),
    server: (port) => ['rping', '-s', '-p', String(port), ...words],
    client: (port, address) => ['rping', '-c', '-a', address, '-p', String(port), ...words],
  };
}

const RPING = rping(['-V', '-C', '100', '-S', '65535']);

const PAIRS: readonly Pair[] = [
  RPING,
  perftest('ib_write_bw', ['-s', '65536', '-n', '40'], /^\s*65536\s+40\s+[\d.]+\s+[\d.]+/m),
  perftest('ib_read_bw', ['-s', '65536', '-n', '40'], /^\s*65536\s+40\s+[\d.]+\s+[\d.]+/m),
];

let guest: Guest;
const folder = new CommandFolder();
let socket: string;
let guestExports: string;

/** A shell command that runs a program on siw, with a time limit. */
function kernelWords(words: readonly string[]): string {
  return `timeout -k 1 ${PROGRAM_SECONDS} ${words.join(' ')}`;
}

/**
 * A command that runs a program on the guest's daemon, without `iwarpd run`: Node starts slowly.
 */
function ourWordsInGuest(words: readonly string[]): string {
  return `${guestExports} exec ${kernelWords(words)}`;
}

/** Starts a daemon in the guest, which sees the host's files. Returns the environment of its programs. */
async function startGuestDaemon(): Promise<string> {
  const main = join(repositoryRoot(), 'dist/daemon/cli/main.js');
  const options = `--socket ${GUEST_SOCKET} --device iw0=${GUEST_ADDRESS} --log-level warn`;
  const daemon = guest.run(`node ${main} start ${options}`);
  await daemon.waitFor(/ready/);
  return await daemonEnvironment(GUEST_SOCKET);
}

/** Ends the processes of the current test that are still running. */
const started: (() => Promise<void>)[] = [];

function inGuest(script: string): GuestProcess {
  const process = guest.run(script);
  started.push(async () => {
    process.kill();
    await process.exit;
  });
  return process;
}

/** A program on the host's daemon. */
function ourProgram(words: readonly string[]): RunningCommand {
  const limit = ['timeout', '-k', '1', String(PROGRAM_SECONDS)];
  const command = folder.start(['run', '--socket', socket, '--', ...limit, ...words]);
  started.push(async () => {
    // SIGKILL would end `run`, but not the program.
    command.signal('SIGTERM');
    await command.end();
  });
  return command;
}

function expectDone({ done }: Pair, { status, output }: EndedRping): void {
  expect(status, output).toBe(0);
  if (done !== undefined) expect(output).toMatch(done);
}

function wasTooSlow(pair: Pair, ended: EndedRping): boolean {
  return pair.perftest === true && perftestWasTooSlow(ended);
}

/** Waits until something listens on a TCP port of this machine, without connecting to it. */
async function untilListening(port: number, server: RunningCommand): Promise<void> {
  const entry = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, '0')} \\S+ 0A `);
  const sockets = (): string => readFileSync('/proc/net/tcp', 'latin1');
  await expect.poll(sockets, { message: server.stderr }).toMatch(entry);
}

describeWith(['kernel-peer', 'perftest'], 'unmodified programs between iwarpd and siw', () => {
  beforeAll(async () => {
    await prepareKernelPeer();
    socket = folder.file('d/s');
    await folder.daemon(socket, ['--no-crc']);
    guest = await startGuest({ forwards: [PORT] });
    guestExports = await startGuestDaemon();
  }, GUEST_START_TIMEOUT_MS);

  afterAll(async () => {
    await guest?.stop();
    await folder.clean();
  });

  // Leftovers of a failed test must not affect the next one.
  afterEach(() => Promise.all(started.splice(0).map((end) => end())));

  describe.each(PAIRS)('$title', { timeout: TEST_TIMEOUT_MS }, (pair) => {
    it('client on the host, CRC off, server on siw', async () => {
      await guest.setSiw({ crcRequired: false });
      await untilFast(async () => {
        const server = inGuest(`serve ${PORT} ${kernelWords(pair.server(PORT))}`);
        await server.waitFor(/READY/);
        const client = ourProgram(pair.client(guest.forwarded(PORT), '127.0.0.1'));
        const ended = await endOfCommand(client);
        if (wasTooSlow(pair, ended)) {
          server.kill();
          await server.exit;
          return ended.output;
        }
        expectDone(pair, ended);
        const served = await endOf(server);
        expect(served.status, served.output).toBe(0);
        return undefined;
      });
    });

    it('server on the host, CRC off, client on siw', async () => {
      await guest.setSiw({ crcRequired: false });
      await untilFast(async () => {
        const port = await freePort();
        const server = ourProgram(pair.server(port));
        await untilListening(port, server);
        const client = await endOf(inGuest(kernelWords(pair.client(port, HOST_ADDRESS))));
        if (wasTooSlow(pair, client)) return client.output;
        expectDone(pair, client);
        const served = await endOfCommand(server);
        expect(served.status, served.output).toBe(0);
        return undefined;
      });
    });
  });

  describe.each(PAIRS)(
    '$title, both in the guest, CRC on',
    { timeout: TEST_TIMEOUT_MS },
    (pair) => {
      it.each([
        ['client on iwarpd, server on siw', ourWordsInGuest, kernelWords],
        ['server on iwarpd, client on siw', kernelWords, ourWordsInGuest],
      ] as const)('%s', async (_, clientWords, serverWords) => {
        await guest.setSiw({ crcRequired: true });
        const server = serverWords(['nice', '-n', '19', ...pair.server(PORT)]);
        const client = clientWords(['nice', '-n', '19', ...pair.client(PORT, GUEST_ADDRESS)]);
        await untilFast(async () => {
          const { status, output } = await endOf(inGuest(`pair ${PORT} "${server}" "${client}"`));
          const ended = { status, output: output.replaceAll(/^client: /gm, '') };
          if (wasTooSlow(pair, ended)) return ended.output;
          expectDone(pair, ended);
          return undefined;
        });
      });
    },
  );
});
