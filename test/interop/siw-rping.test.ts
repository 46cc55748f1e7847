/**
 * iwarpd's rping and rdma-core's over Linux's siw, in both roles.
 *
 * rdma-core's largest size is 65535: it refuses 65536 with "valid range is 23 to 65536". With CRCs
 * off, our end runs on the host, behind QEMU's proxy. With CRCs on, it runs inside the guest, next
 * to siw, since the proxy re-segments the stream and siw rejects a correct CRC if the trailer is
 * split.
 */
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { CommandFolder, type RunningCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { patience } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_ADDRESS,
  GUEST_START_TIMEOUT_MS,
  type Guest,
  type GuestProcess,
  HOST_ADDRESS,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import {
  type EndedRping,
  endOf,
  endOfCommand,
  establishedLine,
  kernelRping,
  ourRpingInGuest,
} from './rping-ends.ts';
import { dissect } from './tshark.ts';

const PORT = 7174;
/** Numbers of pings, and their bytes: many pings where an emulated processor is fast. */
const TALKS = [
  [1000, 64],
  [100, 4096],
  [100, 65535],
] as const;
/** Numbers of pings, and their bytes, if Node runs in the guest. */
const TALKS_INSIDE = [
  [100, 64],
  [50, 4096],
  [50, 65535],
] as const;
const REVISIONS = [1, 2] as const;

let guest: Guest;
const folder = new CommandFolder();

/** rdma-core's server in the guest, reached through `guest.forwarded(PORT)`. */
async function kernelServer(words: string): Promise<GuestProcess> {
  const rping = kernelRping(`-s -a ${GUEST_ADDRESS} -p ${PORT} ${words}`);
  const server = guest.run(`serve ${PORT} ${rping}`);
  await server.waitFor(/READY/);
  return server;
}

/** rdma-core's client in the guest, to a server on the host. */
async function kernelClient(port: number, words: string): Promise<EndedRping> {
  return await guest.runToEnd(kernelRping(`-c -a ${HOST_ADDRESS} -p ${port} ${words}`));
}

/** Our client on the host, to a server in the guest. */
async function ourClient(words: readonly string[]): Promise<EndedRping> {
  const port = String(guest.forwarded(PORT));
  const client = folder.start(['rping', '-c', '-d', '-a', '127.0.0.1', '-p', port, ...words]);
  return await endOfCommand(client);
}

/** Our server on the host, when it listens. */
async function ourServer(port: number, words: readonly string[]): Promise<RunningCommand> {
  const place = ['-a', '127.0.0.1', '-p', String(port)];
  const server = folder.start(['rping', '-s', '-d', ...place, ...words]);
  await server.until(/listening/, 'stderr');
  return server;
}

describeWith(['kernel-peer'], 'rping between iwarpd and siw', () => {
  beforeAll(async () => {
    await prepareKernelPeer();
    guest = await startGuest({ forwards: [PORT], share: folder.path });
  }, GUEST_START_TIMEOUT_MS);

  afterAll(async () => {
    await guest?.stop();
    await folder.clean();
  });

  describe('CRC off, our end on the host', () => {
    it.each(TALKS)("our client, the kernel's server: %i pings of %i bytes", async (pings, size) => {
      await guest.setSiw({ mpaVersion: 2, crcRequired: false });
      const server = await kernelServer(`-V -S ${size}`);
      const words = ['-V', '-S', String(size), '-C', String(pings)];
      const client = await ourClient([...words, '--embedded', '--no-crc']);
      expect(client.status, client.output).toBe(0);
      expect(client.output).toContain(establishedLine(2, false));
      const served = await endOf(server);
      expect(served.status, served.output).toBe(0);
    });

    describe.each(REVISIONS)('a daemon as server, siw of MPA revision %i', (revision) => {
      it.each(TALKS)("the kernel's client: %i pings of %i bytes", async (pings, size) => {
        await guest.setSiw({ mpaVersion: revision, crcRequired: false });
        const socket = folder.file(`r${revision}-${size}/s`);
        const daemon = await folder.daemon(socket, ['--no-crc']);
        const port = await freePort();
        const server = await ourServer(port, ['--socket', socket]);
        const client = await kernelClient(port, `-V -S ${size} -C ${pings}`);
        expect(client.status, client.output).toBe(0);
        const served = await endOfCommand(server);
        expect(served.status, served.output).toBe(0);
        expect(served.output).toContain(establishedLine(revision, false));
        expect(served.output.match(/read completed/g)).toHaveLength(pings);
        expect(served.output.match(/write completed/g)).toHaveLength(pings);
        daemon.signal('SIGTERM');
        expect((await daemon.end()).status).toBe(0);
      });
    });

    it("a daemon's client, the kernel's server", async () => {
      await guest.setSiw({ mpaVersion: 2, crcRequired: false });
      const socket = folder.file('client/s');
      const daemon = await folder.daemon(socket);
      const server = await kernelServer('-v');
      const client = await ourClient(['-v', '-V', '-C', '3', '--no-crc', '--socket', socket]);
      expect(client.status, client.output).toBe(0);
      const served = await endOf(server);
      expect(served.status, served.output).toBe(0);
      // Both show the same text, as both are rping.
      const texts = [...client.output.matchAll(/^ping data: (.*)$/gm)].map(([, text]) => text);
      expect(texts).toHaveLength(3);
      for (const text of texts) expect(served.output).toContain(`server ping data: ${text}\n`);
      await daemon.kill();
    });

    it('ready-to-receive: both offer peer-to-peer, and either end may be first', async () => {
      await guest.setSiw({ mpaVersion: 2, crcRequired: false, peerToPeer: true });
      onTestFinished(() => guest.setSiw({ peerToPeer: false, rtrKinds: 0xc000 }));
      for (const rtrKinds of [0x8000, 0x4000, 0xc000]) {
        await guest.setSiw({ rtrKinds });
        const server = await kernelServer('-V');
        const client = await ourClient(['-V', '-C', '20', '--embedded', '--no-crc']);
        expect(client.status, client.output).toBe(0);
        expect((await endOf(server)).status).toBe(0);
        const port = await freePort();
        const ours = await ourServer(port, ['--embedded', '--no-crc']);
        const theirs = await kernelClient(port, '-V -C 20');
        expect(theirs.status, theirs.output).toBe(0);
        expect((await endOfCommand(ours)).status).toBe(0);
      }
    });
  });

  describe('CRC on, our end in the guest', () => {
    let server: GuestProcess | undefined;

    afterEach(() => {
      server?.kill();
      server = undefined;
    });

    it.each(TALKS_INSIDE)(
      "our client, the kernel's server: %i pings of %i bytes",
      async (pings, size) => {
        await guest.setSiw({ mpaVersion: 2, crcRequired: true });
        const words = `-a ${GUEST_ADDRESS} -p ${PORT} -V -S ${size}`;
        const client = ourRpingInGuest(`-c -d ${words} -C ${pings} --embedded`);
        // Five lines a ping would slow the guest's console down.
        const quiet = `set -o pipefail; ${client} 2>&1 | grep established`;
        const { status, output } = await guest.runToEnd(
          `pair ${PORT} "${kernelRping(`-s ${words}`)}" "${quiet}"`,
        );
        expect(status, output).toBe(0);
        expect(output).toContain(establishedLine(2, true));
      },
    );

    it.each(REVISIONS)(
      "our server, the kernel's client of MPA revision %i",
      async (revision) => {
        await guest.setSiw({ mpaVersion: revision, crcRequired: true });
        const place = `-a ${GUEST_ADDRESS} -p ${PORT}`;
        const ours = `${ourRpingInGuest(`-s -P -d ${place} --embedded`)} 2>&1`;
        server = guest.run(`serve ${PORT} ${ours} | grep --line-buffered -E 'READY|established'`);
        await server.waitFor(/READY/);
        for (const [pings, size] of TALKS_INSIDE) {
          const rping = kernelRping(`-c ${place} -V -S ${size} -C ${pings}`);
          const { status, output } = await guest.runToEnd(rping);
          expect(status, output).toBe(0);
        }
        const established = server.output
          .split('\n')
          .filter((line) => line.includes('established'));
        expect(established).toHaveLength(TALKS_INSIDE.length);
        for (const line of established) expect(line).toContain(establishedLine(revision, true));
      },
      patience(330_000),
    );
  });

  describeWith(['tshark'], 'as Wireshark reads it on the wire, CRC on', () => {
    const place = `-a ${GUEST_ADDRESS} -p ${PORT}`;
    const theirs = (role: string): string => `'rping ${role} ${place} -V -S 3000'`;
    const ours = (role: string): string =>
      `'${ourRpingInGuest(`${role} ${place} -S 3000`)} --embedded'`;
    const talks = [
      ['our client', () => `${theirs('-s')} ${ours('-c -C 3')}`],
      ['our server', () => `${ours('-s')} ${theirs('-c -C 3')}`],
    ] as const;

    it.each(talks)(
      '%s and siw: every FPDU that there should be, none malformed',
      async (_who, talk) => {
        await guest.setSiw({ mpaVersion: 2, crcRequired: true });
        const file = join(folder.path, 'rping.pcap');
        const { status, output } = await guest.runToEnd(`record ${file} lo pair ${PORT} ${talk()}`);
        expect(status, output).toBe(0);
        const { fpdus, malformed, crcGood } = await dissect(file);
        expect(malformed).toEqual([]);
        expect(crcGood).toBe(fpdus.length);
        // Without payload: ready-to-receive, or the nudge of a slow peer.
        const full = fpdus.filter(({ opcode, ulpduLength }) => opcode !== 0 || ulpduLength > 14);
        const messages = (wanted: number): number =>
          full.filter(({ opcode, last }) => opcode === wanted && last).length;
        // Each ping: a Write back, a Read with its Response, two Sends of either side.
        expect([0, 1, 2, 3].map(messages)).toEqual([3, 3, 3, 12]);
      },
    );
  });

  describe('where rdma-core gives up', () => {
    it('refuses 65536 bytes, although it claims to accept them', async () => {
      const refusal = 'Invalid size 65536 (valid range is 23 to 65536)';
      expect((await guest.runToEnd(kernelRping('-s -S 65536'))).output).toContain(refusal);
      const client = kernelRping(`-c -a ${GUEST_ADDRESS} -S 65536`);
      expect((await guest.runToEnd(client)).output).toContain(refusal);
    });

    it('reads no more than its own -S: it sends a Terminate, whose bit order we name', async () => {
      await guest.setSiw({ mpaVersion: 2, crcRequired: false });
      const server = await kernelServer('-S 65535');
      const client = await ourClient(['-S', '65536', '-C', '1', '--embedded', '--no-crc']);
      expect(client.status).toBe(1);
      expect(client.output).toMatch(/server disconnected during ping 0 .*base or bounds violation/);
      expect(client.output).toContain('known quirk: siw-terminate-bit-order');
      expect((await endOf(server)).output).toContain('cq completion failed status 4');
    });

    it('cannot serve MPA revision 1: its listener sees a read depth of 0 and posts a Read', async () => {
      await guest.setSiw({ mpaVersion: 1, crcRequired: false });
      const server = await kernelServer('');
      const client = await ourClient(['-C', '1', '--embedded', '--no-crc', '--mpa-revision', '1']);
      expect((await endOf(server)).output).toContain('post send error');
      expect(client.status).toBe(1);
      expect(client.output).toContain(establishedLine(1, false));
      expect(client.output).toMatch(/server disconnected during ping 0; .* use revision 2/);

      // Nor does it serve another rdma-core.
      const words2 = `-a ${GUEST_ADDRESS} -p ${PORT} -C 1`;
      const pair = `pair ${PORT} "${kernelRping(`-s ${words2}`, 5)}" "${kernelRping(`-c ${words2}`, 5)}"`;
      const { status, output } = await guest.runToEnd(pair);
      expect(output).toContain('post send error');
      expect(status).not.toBe(0);
    });

    it('serves our revision 2 when it would itself ask for revision 1', async () => {
      await guest.setSiw({ mpaVersion: 1, crcRequired: false });
      const server = await kernelServer('-V');
      const client = await ourClient(['-V', '-C', '20', '--embedded', '--no-crc']);
      expect(client.status, client.output).toBe(0);
      expect(client.output).toContain(establishedLine(2, false));
      expect((await endOf(server)).status).toBe(0);
    });
  });

  describe('without a listener', () => {
    it('our client next to siw reports it', async () => {
      const client = ourRpingInGuest(`-c -a ${GUEST_ADDRESS} -p 9 -C 1 --embedded`);
      const { status, output } = await guest.runToEnd(client);
      expect(status).toBe(1);
      expect(output).toContain('connection refused; start the server first');
    });

    it('our client reports it in one line', async () => {
      const port = String(await freePort());
      const place = ['-a', '127.0.0.1', '-p', port];
      const client = folder.start(['rping', '-c', ...place, '-C', '1', '--embedded']);
      const { status, output } = await endOfCommand(client);
      expect(status).toBe(1);
      expect(output).toMatch(
        /^iwarpd: cannot connect to .*: connection refused; start the server first: `iwarpd rping -s`/,
      );
    });

    it("the kernel's client is refused by our host, and then waits forever", async () => {
      const rping = kernelRping(`-c -a ${HOST_ADDRESS} -p ${await freePort()} -C 1`, 3);
      const { status, output } = await guest.runToEnd(rping);
      expect(output).toContain('rdma_connect: Connection refused');
      expect(status).toBe(124);
    });
  });
});
