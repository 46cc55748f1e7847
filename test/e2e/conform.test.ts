/** `iwarpd conform`: our devices against the table, peers that break rules, and the command itself. */
import { readFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { fpduOf } from '#daemon/cli/conform/iwarp-connection';
import { tagged } from '#daemon/cli/conform/iwarp-ping';
import { SINK } from '#daemon/cli/conform/tester-memory';
import { RDMAPOpcode } from '#daemon/iwarp/wire/rdmap-header';
import {
  emitStartupFrame,
  type StartupFrame,
  startupFrameSizeBytes,
} from '#daemon/iwarp/wire/startup-frame';
import { CommandFolder, type Finished, runCommand } from '../support/cli-process.ts';
import { documentedVerdicts, printedVerdicts } from '../support/conformance-table.ts';
import { ownAddress } from '../support/own-address.ts';
import { patience } from '../support/patience.ts';
import { repositoryRoot } from '../support/prerequisites.ts';

const PEER = ownAddress(2);
const TESTER = ownAddress(3);
const PORT = '7174';
/** For a loaded machine, which answers late; rows that wait for silence take longer with it. */
const PATIENCE = ['--patience', String(patience(1000))];

const folder = new CommandFolder();
const socket = (): string => folder.file('d/s');

/** Starts a daemon with a device of each protocol, and a target on them, by the command `serving`. */
async function startPeer(serving = ['conform', '--serve', '-p', PORT]): Promise<void> {
  const devices = ['--device', `roce0=roce:${PEER}`, '--device', `iwarp0=${PEER}`];
  await folder.daemon(socket(), devices);
  const target = folder.start([...serving, '--socket', socket()]);
  await target.until(/ready|listening/, serving[0] === 'rping' ? 'stderr' : 'stdout');
}

function conform(...words: readonly string[]): Promise<Finished> {
  const place = ['--peer', PEER, '--from', TESTER, '-p', PORT];
  return runCommand(['conform', ...place, ...PATIENCE, ...words]);
}

async function addFault(...words: readonly string[]): Promise<void> {
  const added = await runCommand(['fault', 'add', ...words, '--socket', socket()]);
  expect(added.status, added.stderr).toBe(0);
}

describe('conform', () => {
  afterEach(() => folder.clean());

  it.each([
    ['RoCEv2', 'roce'],
    ['iWARP', 'iwarp'],
  ] as const)('finds our devices over %s as documented', async (wire, over) => {
    await startPeer();
    const { stdout, stderr } = await conform('--over', over, '--json');
    const { verdicts, details } = printedVerdicts(stdout);
    expect(verdicts, details.join('\n')).toEqual(documentedVerdicts(wire, 'iwarpd'));
    expect(stderr).toBe('');
  });

  it('lists the rows, each a requirement of test/spec', async () => {
    const { stdout } = await runCommand(['conform', '--list']);
    const ids = stdout
      .trim()
      .split('\n')
      .map((line) => line.split(' ')[0]);
    const requirements = readFileSync(join(repositoryRoot(), 'test/spec/requirements.tsv'), 'utf8');
    const known = new Set(requirements.split('\n').map((line) => line.split('\t')[0]));
    expect(ids.filter((id) => !known.has(id))).toEqual([]);
    expect(new Set(ids).size).toBe(ids.length);
    const documented = [
      documentedVerdicts('RoCEv2', 'iwarpd'),
      documentedVerdicts('iWARP', 'iwarpd'),
    ];
    expect(ids).toEqual(documented.flatMap((rows) => Object.keys(rows)));
  });

  it('skips rows that need memory if the peer is a plain rping server', async () => {
    await startPeer(['rping', '-s', '-P', '-d', '-p', PORT]);
    const { stdout, status } = await conform('--json');
    const { verdicts, details } = printedVerdicts(stdout);
    expect(
      Object.values(verdicts).filter((verdict) => verdict === 'FAIL'),
      details.join('\n'),
    ).toEqual([]);
    expect(verdicts).toMatchObject({
      'ROCE-ACK-01': 'pass',
      'ROCE-READ-01': 'skip',
      'MPA-4.4-16': 'pass',
    });
    expect(details.join('\n')).toMatch(
      /ROCE-READ-01: the peer offers no memory: run `iwarpd conform --serve` there/,
    );
    expect(status).toBe(0);
  });
});

describe('a peer that breaks a rule does not conform:', () => {
  beforeAll(() => startPeer(), patience(30_000));
  afterEach(() => runCommand(['fault', 'remove', 'all', '--socket', socket()]));
  afterAll(() => folder.clean());

  it.each([
    [
      'ROCE-ICRC-01',
      'its ICRC is wrong',
      ['corrupt-icrc', '--direction', 'out', '--opcode', 'read-request'],
    ],
    [
      'ROCE-ICRC-03',
      'expected no answer',
      ['duplicate', '--direction', 'out', '--opcode', 'acknowledge'],
    ],
    ['ROCE-ACK-01', 'expected an ACK', ['nak', '--syndrome', 'remote-access']],
    [
      'ROCE-NAK-02',
      'expected no answer',
      ['duplicate', '--direction', 'out', '--opcode', 'acknowledge'],
    ],
    [
      'ROCE-READ-01',
      'received nothing',
      ['drop', '--direction', 'out', '--opcode', 'read-response'],
    ],
    ['ROCE-BTH-09', 'received nothing', ['drop', '--direction', 'out', '--opcode', 'write']],
    ['MPA-4.4-09', 'its CRC is wrong', ['corrupt-crc', '--opcode', 'read-request']],
    ['RDMAP-5.2.2-01', 'another buffer', ['corrupt-stag', '--opcode', 'read-response']],
    ['DDP-4.3-06', 'have 1,', ['corrupt-msn', '--opcode', 'send']],
  ])('%s, with the detail: %s', async (id, detail, fault) => {
    await addFault(...fault);
    const { stdout, stderr, status } = await conform('--only', id);
    expect(stdout).toMatch(new RegExp(`^FAIL +${id} .*\n +.*${detail}`, 'm'));
    expect(stderr).toContain(`iwarpd: ${PEER} does not conform: ${id}`);
    expect(status).toBe(1);
  });
});

describe('the results', () => {
  afterEach(() => folder.clean());

  it('are JUnit XML, with a suite for each protocol', async () => {
    await startPeer();
    const path = folder.file('conform.xml');
    await addFault('corrupt-crc', '--opcode', 'read-request');
    const ids = ['ROCE-ACK-01', 'MPA-4.4-09'];
    expect((await conform('--only', ...ids, '--junit', path)).status).toBe(1);
    const xml = readFileSync(path, 'utf8');
    expect(xml).toContain(`name="iwarpd conform, RoCEv2 at ${PEER}"`);
    expect(xml).toMatch(/tests="1" failures="0" errors="0" skipped="0"/);
    expect(xml).toMatch(
      /<testcase classname="conform.RoCEv2" name=".* \[ROCE-ACK-01\]" time="[\d.]+"\/>/,
    );
    expect(xml).toMatch(/tests="1" failures="1" errors="0" skipped="0"/);
    expect(xml).toMatch(/<failure message="its CRC is wrong"\/>/);
  });

  it('end at once on Ctrl-C', async () => {
    await startPeer();
    await addFault('drop', '--direction', 'out', '--opcode', 'acknowledge');
    const place = ['--peer', PEER, '--from', TESTER, '-p', PORT, '--patience', '600000'];
    const command = folder.start(['conform', ...place, '--over', 'roce', '--only', 'ROCE-ACK-01']);
    await folder.start(['wait', '--socket', socket()]).end();
    command.signal('SIGINT');
    expect((await command.end()).status).toBe(130);
  });
});

describe('a peer that sends without end', () => {
  const REPLY: StartupFrame = {
    kind: 'reply',
    markers: false,
    crc: true,
    rejected: false,
    revision: 1,
    enhanced: undefined,
    privateData: new Uint8Array(0),
  };
  /** Segments of no bytes, which end no message. */
  const segment = fpduOf(
    tagged(RDMAPOpcode.readResponse, SINK.rkey, SINK.address, new Uint8Array(0), false),
  );
  const flood = Buffer.concat(Array.from({ length: 1000 }, () => segment));

  function send(socket: Socket): void {
    socket.on('error', () => socket.destroy());
    socket.on('data', () => {});
    const more = (): void => {
      if (socket.write(flood)) setImmediate(more);
    };
    socket.on('drain', more);
    more();
  }

  it('fails a row, before and after startup', async () => {
    const reply = new Uint8Array(startupFrameSizeBytes(REPLY));
    emitStartupFrame(REPLY, reply);
    const server = createServer((socket) => {
      socket.on('error', () => socket.destroy());
      socket.once('data', () => {
        socket.write(reply);
        send(socket);
      });
    });
    await new Promise<void>((resolve) => server.listen(Number(PORT), PEER, resolve));
    try {
      const ids = ['MPA-7.1.1-03', 'RDMAP-5.2.1-11', 'DDP-7.1-09'];
      const { stdout, status } = await conform('--over', 'iwarp', '--only', ...ids);
      expect(stdout).toMatch(/^FAIL +MPA-7\.1\.1-03/m);
      expect(stdout).toMatch(/^FAIL +RDMAP-5\.2\.1-11 .*\n +.*the peer sends without end/m);
      expect(stdout).toMatch(/^FAIL +DDP-7\.1-09/m);
      expect(status).toBe(1);
    } finally {
      server.close();
    }
  });
});

describe('an error', () => {
  afterEach(() => folder.clean());

  it.each([
    [[], 'give --peer ADDRESS to test a peer, --serve to be one, or --list'],
    [['--serve', '--list'], 'give --peer ADDRESS to test a peer, --serve to be one, or --list'],
    [['--peer', '127.0.0.1', '--native'], '--native and --socket are for --serve'],
    [['--serve', '--native', '--socket', '/x'], '--native uses a real device: leave out --socket'],
    [
      ['--peer', '127.0.0.1', '--only', 'X-1'],
      "no row has the id 'X-1'; `iwarpd conform --list` shows all",
    ],
    [
      ['--peer', '127.0.0.1', '--over', 'iwarp', '--only', 'ROCE-ACK-01'],
      '--only names no row of --over iwarp',
    ],
    [['--peer', '127.0.0.1', '--patience', '1'], 'must be a whole number from 300 to 600000'],
    [['--peer', '127.0.0.1', '--from', '::1'], 'must both be IPv4 addresses, or both IPv6'],
    [['--peer', 'nowhere'], 'must be an IPv4 or IPv6 address'],
  ])('%j', async (words, text) => {
    const { stderr, status } = await runCommand(['conform', ...words]);
    expect(stderr).toContain(text);
    expect(status).toBe(2);
  });

  it(
    'names a peer that does not answer, and what to start there',
    async () => {
      const { stderr, status } = await conform('--patience', '300');
      expect(stderr).toMatch(
        new RegExp(
          `^iwarpd: cannot test ${PEER}: no RoCEv2 \\(.*\\); no iWARP \\(.* does not accept TCP connections\\); start `,
        ),
      );
      expect(status).toBe(1);
    },
    patience(30_000),
  );

  it(
    'names the protocol that does not answer beside one that does',
    async () => {
      await folder.daemon(socket(), ['--device', `iwarp0=${PEER}`]);
      const target = folder.start(['conform', '--serve', '-p', PORT, '--socket', socket()]);
      await target.until(/ready/);
      const { stdout, stderr, status } = await conform('--only', 'MPA-4.4-09', 'ROCE-ACK-01');
      expect(stdout).toMatch(/^iWARP at .*: 1 passed, 0 failed, 0 skipped\n$/m);
      expect(stderr).toMatch(/^not tested: no RoCEv2 \(.*\)\n$/);
      expect(status).toBe(0);
    },
    patience(30_000),
  );

  it('names a peer to which this host cannot send', async () => {
    const words = ['--peer', '192.0.2.1', '--from', TESTER, '--over', 'roce'];
    const { stderr, status } = await runCommand(['conform', ...words]);
    expect(stderr).toMatch(/^iwarpd: cannot send from [\d.]+ to 192\.0\.2\.1: E[A-Z]+\n$/);
    expect(status).toBe(1);
  });

  it('names a port that is in use, and the fix', async () => {
    await startPeer();
    const words = ['conform', '--peer', TESTER, '--from', PEER, '--over', 'roce'];
    // The device opens its port for its first packet to another host.
    await conform('--over', 'roce', '--only', 'ROCE-ACK-01');
    const { stderr, status } = await runCommand(words);
    expect(stderr).toContain(
      `cannot open UDP port 4791 of ${PEER}: it is taken, by a daemon or by the kernel's rxe; test from another address (--from)`,
    );
    expect(status).toBe(1);
  });
});
