/** The kernel peer itself, on which other suites depend. */
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { patience, programSeconds, quiet } from '../support/patience.ts';
import { readTcpConnections } from '../support/pcap-reader.ts';
import { describeWith } from '../support/prerequisites.ts';
import { BindClashes, kernelOutcomes, outcomesOf } from './bind-clashes.ts';
import { compileProgram } from './c-programs.ts';
import { HOWS } from './dropped-rights.ts';
import { linesOf, stepsOfChild } from './forked-child.ts';
import { guestsAtOnce, takeGuestSlot } from './kernel-peer/guest-slot.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_ADDRESS,
  GUEST_START_TIMEOUT_MS,
  type Guest,
  HOST_ADDRESS,
  shellWord,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import { exposeSiwParameters, type SiwParameters } from './kernel-peer/siw-parameters.ts';

const PORT = 7174;
/** A guest is an emulated machine, and its host may be busy. */
const TEST_MS = 90_000;
const REQUEST = 'MPA ID Req Frame';

/** An MPA Request of revision 1 without private data. */
function plainRequest(): Buffer {
  return Buffer.concat([Buffer.from(REQUEST), Buffer.from([0x00, 0x01, 0x00, 0x00])]);
}

/** The next `bytes` bytes of a socket; fewer when its peer closes. */
async function receive(socket: Socket, bytes: number): Promise<Buffer> {
  while (socket.readableLength < bytes && !socket.readableEnded && !socket.destroyed) {
    // An empty read requests more, which `readable` then reports.
    socket.read(0);
    await Promise.race([once(socket, 'readable'), once(socket, 'close')]);
    if (socket.readableLength === 0) socket.read();
  }
  return (socket.read(Math.min(bytes, socket.readableLength)) as Buffer | null) ?? Buffer.alloc(0);
}

/** The startup frame that siw sends to a listener of the host. */
async function requestFrom(guest: Guest): Promise<Buffer> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const client = guest.run(`verbs-probe connect ${HOST_ADDRESS} ${address.port} private=c0ffee`);
  const [socket] = (await once(server, 'connection')) as [Socket];
  const header = await receive(socket, 20);
  const request = Buffer.concat([header, await receive(socket, header.readUInt16BE(18))]);
  socket.destroy();
  server.close();
  client.kill();
  await client.exit;
  return request;
}

it('reports a changed source of siw', () => {
  const sources = new Map([
    ['siw_main.c', 'bool try_gso;'],
    ['siw_cm.c', ''],
    ['siw.h', ''],
  ]);
  expect(() => exposeSiwParameters(sources)).toThrow("siw's source has changed");
});

it('runs guests in turn, one for two processors unless they have priority', async () => {
  const atOnce = (first: boolean) => [1, 2, 3, 4, 16].map((each) => guestsAtOnce(each, first));
  expect(atOnce(false)).toEqual([1, 1, 1, 2, 8]);
  expect(atOnce(true)).toEqual([1, 2, 3, 4, 16]);
  const folder = await mkdtemp(join(tmpdir(), 'iwarpd-slots-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const [first, second] = [await takeGuestSlot(folder, 0, 2), await takeGuestSlot(folder, 0, 2)];
  await expect(takeGuestSlot(folder, 0, 2)).rejects.toThrow(/other guests of this user/);
  const third = takeGuestSlot(folder, 10_000, 2);
  await first.close();
  await (await third).close();
  await second.close();
});

describeWith(['kernel-peer', 'native'], 'kernel peer', () => {
  let guest: Guest;
  let share: string;

  beforeAll(async () => {
    await prepareKernelPeer();
    share = await mkdtemp(join(tmpdir(), 'iwarpd-share-'));
    guest = await startGuest({ forwards: [PORT], share, siw: { mpaVersion: 1 } });
  }, GUEST_START_TIMEOUT_MS);

  afterAll(async () => {
    await guest?.stop();
    await rm(share, { recursive: true, force: true });
  });

  it('shows siw0 to rdma-core', async () => {
    const { status, output } = await guest.runToEnd('ibv_devinfo -d siw0');
    expect(status, output).toBe(0);
    expect(output).toMatch(/transport:\s+iWARP/);
  });

  it('returns output line by line, and exit statuses', async () => {
    const slow = guest.run('echo one; sleep 0.5; echo "two  $HOST_ADDRESS" >&2; exit 7');
    await slow.waitFor(/^one$/m);
    expect(slow.output).toBe('one\n');
    expect(await slow.exit).toBe(7);
    expect(slow.output).toBe(`one\ntwo  ${HOST_ADDRESS}\n`);
    await expect(slow.waitFor(/three/)).rejects.toThrow('ended with status 7');
  });

  it('runs scripts concurrently and ends them on request', async () => {
    const sleeper = guest.run('echo started; sleep 300');
    await sleeper.waitFor(/started/);
    expect((await guest.runToEnd('true')).status).toBe(0);
    sleeper.kill();
    expect(await sleeper.exit).not.toBe(0);
  });

  it('runs programs of the host: node, in the directory of this process', async () => {
    const script = `node -p 'process.cwd() + require("node:os").hostname()'`;
    const { output } = await guest.runToEnd(script);
    expect(output).toBe(`${process.cwd()}kernel-peer\n`);
  });

  it('connects to a listener of the host with the requested parameters', async () => {
    const flagsAndRevision = async (siw: SiwParameters): Promise<string> => {
      await guest.setSiw(siw);
      const request = await requestFrom(guest);
      expect(request.subarray(0, 16).toString('latin1')).toBe(REQUEST);
      return request.subarray(16, 18).toString('hex');
    };
    expect(await flagsAndRevision({})).toBe('0001');
    expect(await flagsAndRevision({ crcRequired: true })).toBe('4001');
    expect(await flagsAndRevision({ mpaVersion: 2 })).toBe('5002');
    expect(await flagsAndRevision({ crcRequired: false })).toBe('1002');
    await guest.setSiw({ peerToPeer: true, rtrKinds: 0x4000 });
    const enhanced = (await requestFrom(guest)).readUInt32BE(20);
    expect(enhanced & 0xc000c000).toBe(0x80004000 | 0);
    await guest.setSiw({ peerToPeer: false, rtrKinds: 0xc000 });
  });

  it('is reached by the host on a forwarded port and rejects on request', async () => {
    const listen = `verbs-probe listen ${GUEST_ADDRESS} ${PORT} reject=1 private=0a0b0c`;
    const listener = guest.run(`serve ${PORT} ${listen}`);
    await listener.waitFor(/READY 7174/);
    const socket = connect(guest.forwarded(PORT), '127.0.0.1');
    socket.write(plainRequest());
    const reply = await receive(socket, 23);
    socket.destroy();
    expect(reply.toString('latin1')).toBe('MPA ID Rep Frame\x20\x01\x00\x03\x0a\x0b\x0c');
    expect(await listener.exit, listener.output).toBe(0);
  });

  it('answers a Write to an unknown STag with a Terminate', async () => {
    const listener = guest.run(`serve ${PORT} verbs-probe listen ${GUEST_ADDRESS} ${PORT}`);
    await listener.waitFor(/READY 7174/);
    const socket = connect(guest.forwarded(PORT), '127.0.0.1');
    socket.write(plainRequest());
    const reply = await receive(socket, 36);
    // The STag of the private data, changed except for its key; the CRC field is ignored.
    const stag = Buffer.from(reply.subarray(20, 24).map((byte, at) => (at < 3 ? byte ^ 0x5a : 0)));
    // siw looks for FPDUs shortly after its Reply. It leaves an earlier one unread until more bytes
    // arrive, so a peer that sends one too early and then waits would wait forever.
    await quiet(200);
    const write = Buffer.from('0012c140', 'hex');
    const to = Buffer.alloc(8);
    socket.write(Buffer.concat([write, stag, to, Buffer.from('cafe'), Buffer.alloc(4)]));
    const terminate = await receive(socket, 26);
    socket.destroy();
    // Untagged, last, Terminate, QN 2, MSN 1; then layer 1, type 1, code 0.
    expect(terminate.subarray(2, 4).toString('hex')).toBe('4147');
    expect(terminate.subarray(8, 16).toString('hex')).toBe('0000000200000001');
    expect(terminate.subarray(20, 22).toString('hex')).toBe('1100');
    expect(await listener.exit, listener.output).toBe(0);
  });

  it('reports to its client that there is no listener', async () => {
    const { status, output } = await guest.runToEnd(`verbs-probe connect ${GUEST_ADDRESS} 9`);
    expect(status).toBe(1);
    expect(output).toMatch(/refused/);
  });

  it('connects siw to siw and records the traffic', async () => {
    await guest.setSiw({ crcRequired: true });
    const file = join(share, 'rping.pcap');
    const rping = `rping -a ${GUEST_ADDRESS} -p ${PORT} -C 3 -v -V`;
    const pair = `pair ${PORT} '${rping} -s' '${rping} -c'`;
    const { status, output } = await guest.runToEnd(`record ${file} lo ${pair}`);
    await guest.setSiw({ crcRequired: false });
    expect(status, output).toBe(0);
    expect(output.match(/client: ping data: rdma-ping-/g)).toHaveLength(3);
    expect(output.match(/server: server ping data: rdma-ping-/g)).toHaveLength(3);
    const [connection] = readTcpConnections(await readFile(file));
    expect(connection?.responderPort).toBe(PORT);
    expect(connection?.initiator.bytes.subarray(16, 18)).toEqual(new Uint8Array([0x50, 2]));
  });

  it('runs a program of the host next to siw, with no proxy in between', async () => {
    await guest.setSiw({ mpaVersion: 2 });
    // Revision 2, rejected, enhanced; four bytes of private data.
    const reply = Buffer.from(
      'MPA ID Rep Frame\x30\x02\x00\x08\x00\x00\x00\x00\x0a\x0b\x0c\x0d',
      'latin1',
    );
    const program = `
      const server = require('node:net').createServer((socket) => {
        server.close();
        socket.once('data', () => socket.end(Buffer.from('${reply.toString('hex')}', 'hex')));
      });
      server.listen(${PORT}, '${GUEST_ADDRESS}');`;
    const server = shellWord(`node -e ${shellWord(program)}`);
    const pair = guest.run(`pair ${PORT} ${server} 'verbs-probe connect ${GUEST_ADDRESS} ${PORT}'`);
    await pair.exit;
    expect(pair.output).toMatch(/client: cm RDMA_CM_EVENT_REJECTED status=-104 private=0a0b0c0d/);
    expect(pair.output).toMatch(/server ended 0/);
  });

  it.each(['alive', 'gone'])(
    'gives a forked child whose parent is %s the results of siw',
    async (parent) => {
      const program = compileProgram('forked-child', ['-lrdmacm'], join(share, 'forked-child'));
      const words = `${program} ${GUEST_ADDRESS} ${PORT} ${parent}`;
      const { status, output } = await guest.runToEnd(`timeout ${programSeconds()} ${words}`);
      expect(status, output).toBe(0);
      expect(linesOf(output).child).toEqual(stepsOfChild('iwarp'));
    },
    patience(TEST_MS),
  );

  it('allows a child its device after its parent dropped privileges', async () => {
    const program = compileProgram('dropped-rights', ['-lrdmacm'], join(share, 'dropped-rights'));
    const runs = HOWS.flatMap((how) => ['forked', 'forks'].map((when) => `${how} ${when}`));
    const seconds = programSeconds();
    const words = runs.map(
      (run) => `made=$(timeout ${seconds} ${program} siw0 ${run} 2>&1); echo "${run}: $made, $?"`,
    );
    const { output } = await guest.runToEnd(words.join('\n'));
    expect(output.trimEnd().split('\n')).toEqual(runs.map((run) => `${run}: all made, 0`));
  });

  it("lets rdma_cm ids share ports as the table of the daemon's tests says for siw", async () => {
    const [second, six] = ['10.0.2.16', 'fd00:2::15'];
    const clashes = new BindClashes(share);
    const script = [
      `ip addr add ${second}/24 dev eth0; ip -6 addr add ${six}/64 dev eth0 nodad`,
      `timeout 60 ${clashes.command([GUEST_ADDRESS, second, six], 20_000)}`,
    ];
    const { status, output } = await guest.runToEnd(script.join('\n'));
    expect(status, output).toBe(0);
    expect(outcomesOf(output)).toEqual(kernelOutcomes('iwarp'));
  });

  it('is gone after stop and reports it', async () => {
    const sleeper = guest.run('sleep 300');
    await guest.stop();
    await expect(sleeper.exit).rejects.toThrow('the guest was stopped');
    await expect(guest.run('true').exit).rejects.toThrow('the guest was stopped');
  });
});
