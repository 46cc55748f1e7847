/**
 * Every limit of the whole daemon, as `daemon/LIMITS.md` lists them: one user takes as much as it
 * can of each, which must not affect `iwarpd status`, programs of the owner, or programs of a third
 * user.
 *
 * Limits are lower than by default, so that a small machine can reach them.
 */
import { chmodSync, chownSync, mkdirSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import { Role } from '#contract/protocol/ipc-frames';
import { Access, SendFlag, WROpcode } from '#contract/verbs/enums';
import { LIMIT_NAMES } from '#daemon/clients/objects/daemon-budget';
import { ShimOp } from '#daemon/kernel/shim-protocol';
import type { DaemonConfigInput } from '#daemon/main/config';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { commands } from '../support/kernel-commands.ts';
import { patience, patient, until } from '../support/patience.ts';
import { ShimClient } from '../support/shim-client.ts';
import { connectToPeer, PEER, PEER_PORT } from './two-users/glutton.ts';
import { connectPair } from './two-users/roce-parts.ts';
import {
  ALICE,
  EVE,
  TwoUsers,
  twoUsersObstacle,
  type UserProcess,
} from './two-users/user-process.ts';

const obstacle = twoUsersObstacle();
/** A third user, also without an entry in /etc/passwd. */
const BOB = 61_003;
const ROOT = 0;
const OPEN_FILES = 1024;
const FEW_PORTS = 'ip link set lo up; sysctl -qw net.ipv4.ip_local_port_range="40000 40799"';
const ROUNDS = 5;

/** How to lower a limit, and the text of its refusal. */
interface Row {
  readonly options: DaemonConfigInput;
  readonly refusal: RegExp;
  /** The daemon's user: another one if the kernel does not limit root. */
  readonly owner?: number;
  /** The daemon's log line, if it says more than the program's error. */
  readonly logged?: string;
  /** Lower layer or transport of the connections that it makes to another daemon. */
  readonly peer?: 'sctp' | 'roce';
  /** Its name in `status`, if the row has another. */
  readonly limit?: string;
}

const ROCE = { name: 'r', transport: 'roce', addresses: ['127.0.0.2'] } as const;
const SCTP = { name: 's', lowerLayer: 'sctp', addresses: ['127.0.0.4'] } as const;

const share = (limit: number): string => `may have ${Math.floor((limit * 3) / 8)}`;

const ROWS: Readonly<Record<string, Row>> = {
  sharedBytes: {
    options: { limits: { sharedBytes: 64 * 2 ** 20 } },
    refusal: new RegExp(`ENOMEM user ${EVE} .*${share(64 * 2 ** 20)}.*limits.sharedBytes`),
  },
  mappings: {
    options: { limits: { mappings: 800 } },
    refusal: new RegExp(`ENOMEM user ${EVE} .*limits.mappings`),
  },
  objects: {
    options: { limits: { objects: 2000 } },
    refusal: new RegExp(`ENOMEM user ${EVE} .*limits.objects`),
  },
  ids: {
    options: { limits: { ids: 2000 } },
    refusal: new RegExp(`ENOMEM user ${EVE} .*${share(2000)}.*limits.ids`),
  },
  'qp of r': {
    options: {
      devices: [
        { name: 'r', transport: 'roce', addresses: ['127.0.0.2'], profile: { maxQp: 400 } },
      ],
    },
    refusal: new RegExp(`ENOMEM user ${EVE} .*objects of kind qp on r .*profile`),
  },
  connections: {
    options: { connectionsMax: 800 },
    refusal: new RegExp(`user ${EVE} .*800 connections .*connectionsMax`),
  },
  descriptors: { options: {}, refusal: new RegExp(`user ${EVE} .*descriptors .*ulimit -n`) },
  descriptorsInFlight: {
    options: {},
    refusal: /^errno 24$/,
    owner: ALICE,
    logged: `daemon's ${OPEN_FILES} descriptors that programs have not received and ${share(OPEN_FILES)}`,
  },
  'descriptors of listeners': {
    options: {},
    refusal: new RegExp(`EMFILE|user ${EVE} .*descriptors .*ulimit -n`),
    limit: 'descriptors',
  },
  ports: { options: {}, refusal: new RegExp(`EADDRNOTAVAIL user ${EVE} .*ip_local_port_range`) },
  groups: {
    options: { limits: { groups: 400 } },
    refusal: new RegExp(`ENOMEM user ${EVE} .*${share(400)}.*limits.groups`),
  },
  associations: {
    options: { limits: { associations: 40 }, devices: [ROCE, SCTP] },
    refusal: /^ENOMEM/,
    peer: 'sctp',
  },
  roceConnections: {
    options: { limits: { roceConnections: 40 } },
    refusal: new RegExp(`ENOMEM user ${EVE} .*${share(40)}.*limits.roceConnections`),
    peer: 'roce',
  },
  unreadBytes: { options: { limits: { unreadBytes: 4 * 2 ** 20 } }, refusal: /ended/ },
  inputBytes: { options: { limits: { inputBytes: 4 * 2 ** 20 } }, refusal: /^[1-9]\d* ended/ },
};

let users: TwoUsers;

beforeEach(() => {
  users = new TwoUsers();
});

afterEach(() => users.clean());

/** A daemon that serves everyone. */
async function openDaemon(owner: number, options: DaemonConfigInput) {
  const folder = users.path('of-owner');
  mkdirSync(folder, { mode: 0o755 });
  chownSync(folder, owner, owner);
  chmodSync(folder, 0o755);
  const config = users.path('config.json');
  const iwarp = { name: 'i', addresses: ['127.0.0.3'] } as const;
  const all: DaemonConfigInput = { devices: [ROCE, iwarp], allowOtherUsers: true, ...options };
  writeFileSync(config, JSON.stringify({ ...all, native: false, logLevel: 'warn' }));
  const socket = `${folder}/s`;
  const words = ['start', '--socket', socket, '--config', config];
  const few = ['prlimit', `--nofile=${OPEN_FILES}:${OPEN_FILES}`];
  // In its own network, which programs need not share: the socket is a file.
  const alone = ['unshare', '--net', 'sh', '-c', `${FEW_PORTS}; exec "$@"`, 'sh'];
  const within = owner === ROOT ? [...alone, ...few] : few;
  const daemon = users.iwarpd(owner, words, {}, within);
  await daemon.until(/ready/);
  return { daemon, socketPath: socket };
}

/** Listens in the network of a daemon, from a second one, and accepts all connections. */
async function openPeer(daemon: UserProcess, layer: 'sctp' | 'roce'): Promise<() => Promise<void>> {
  const [socketPath, config] = [users.path('peer.sock'), users.path('peer.json')];
  const kind = layer === 'sctp' ? { lowerLayer: layer } : { transport: layer };
  const devices = [{ name: 'peer', ...kind, addresses: [PEER] }];
  writeFileSync(config, JSON.stringify({ devices, native: false, logLevel: 'warn' }));
  const words = ['start', '--socket', socketPath, '--config', config];
  const within = ['nsenter', `--net=/proc/${daemon.pid}/ns/net`];
  await users.iwarpd(ROOT, words, {}, within).until(/ready/);
  const provider = await connectDaemon({ socketPath });
  const listener = await listen(provider, { host: PEER, port: PEER_PORT });
  const accepting = (async () => {
    // Ends when the provider closes.
    for await (const request of listener) request.accept({ messages: true }).catch(() => undefined);
  })().catch(() => undefined);
  return async () => {
    await provider.close();
    await accepting;
  };
}

/** The worst times of a program's steps, in milliseconds. */
type Latency = Record<'message' | 'start' | 'open' | 'status', number>;

/** A program of the owner that moves data, beside ones that start and open the device, and `status`. */
class Canary {
  readonly #socketPath: string;
  readonly #owner: number;
  #ping: () => Promise<void> = () => Promise.resolve();
  #close: () => Promise<void> = () => Promise.resolve();

  constructor(socketPath: string, owner: number) {
    this.#socketPath = socketPath;
    this.#owner = owner;
  }

  async start(): Promise<void> {
    const provider = await this.#connect();
    const context = await provider.open('r');
    const { qp, cq, mr } = await connectPair(context);
    this.#ping = async () => {
      qp.postSend({
        opcode: WROpcode.rdmaWrite,
        flags: SendFlag.signaled,
        sgList: [mr.sge()],
        remoteAddr: mr.address,
        rkey: mr.rkey,
      });
      const [completion] = await cq.wait({ max: 1, signal: patient() });
      expect(completion?.status).toBe(0);
    };
    this.#close = () => provider.close();
  }

  /** The worst of some rounds. */
  async latency(): Promise<Latency> {
    const worst: Latency = { message: 0, start: 0, open: 0, status: 0 };
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [step, run] of Object.entries(this.#steps) as [
        keyof Latency,
        () => Promise<void>,
      ][]) {
        const start = performance.now();
        await run();
        worst[step] = Math.max(worst[step], Math.round(performance.now() - start));
      }
    }
    return worst;
  }

  /** A program of the owner connects to the peer. */
  async connect({ addresses: [source] }: { readonly addresses: readonly [string] }): Promise<void> {
    const provider = await this.#connect();
    await connectToPeer(provider, source);
    await provider.close();
  }

  async stop(): Promise<void> {
    await this.#close();
  }

  readonly #steps: Record<keyof Latency, () => Promise<void>> = {
    message: () => this.#ping(),
    start: async () => {
      const provider = await this.#connect();
      const context = await provider.open('r');
      const pd = await context.allocPD();
      await pd.allocMR(2 ** 20, Access.localWrite);
      const cq = await context.createCQ({ cqe: 16 });
      await pd.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 16, maxRecvWr: 16 });
      await provider.createId();
      await provider.close();
    },
    // As an unmodified program does.
    open: async () => {
      const file = await ShimClient.uverbs(this.#socketPath, Role.uverbs);
      expect(file.welcome).toMatchObject({ errno: 0 });
      expect((await file.call(ShimOp.write, { payload: commands.getContext() })).status).toBe(0);
      const { status, descriptor } = await file.call(ShimOp.rings);
      expect(status).toBe(0);
      closeDescriptor(descriptor ?? -1);
      file.close();
    },
    status: async () => {
      const { socketPath, allowDaemonUid } = this.#place;
      await queryDaemon('status', {}, { socketPath, allowDaemonUid });
    },
  };

  get #place() {
    return { socketPath: this.#socketPath, allowDaemonUid: this.#owner };
  }

  #connect() {
    return connectDaemon(this.#place);
  }
}

it('every limit is taken', () => {
  // One kind of device objects stands for all.
  const taken = Object.entries(ROWS).map(([name, { limit = name }]) => limit);
  expect([...new Set(taken)].sort()).toEqual([...LIMIT_NAMES, 'qp of r'].sort());
});

describe.runIf(obstacle === '')(`one user takes all that there is${obstacle}`, () => {
  it.each(Object.entries(ROWS))('of %s, without effect on other users', async (name, row) => {
    const { owner = ROOT, limit = name, logged = 'may have \\d+' } = row;
    const { daemon, socketPath } = await openDaemon(owner, row.options);
    const canary = new Canary(socketPath, owner);
    await canary.start();
    const closePeer = row.peer && (await openPeer(daemon, row.peer));
    const before = await canary.latency();
    const glutton = users.program(EVE, ['glutton', socketPath, name]);
    const [, taken = '', refusal = ''] = await glutton.until(/took (\d+): (.*)\n/);
    expect(refusal).toMatch(row.refusal);
    expect(Number(taken)).toBeGreaterThan(0);
    const beside = await canary.latency();
    if (row.peer !== undefined) await canary.connect(row.peer === 'sctp' ? SCTP : ROCE);
    // A third user's program, and the owner's administration.
    const trust = { IWARPD_ALLOW_DAEMON_UID: String(owner) };
    const third = users.program(BOB, ['connect', socketPath], trust);
    expect(await third.end()).toMatchObject({ stdout: 'done\n' });
    const ended = await users.iwarpd(owner, ['status', '--json', '--socket', socketPath]).end();
    expect(ended).toMatchObject({ status: 0 });
    const { health }: DaemonStatus = JSON.parse(ended.stdout);
    expect(health.limits[limit]?.user).toMatchObject({ uid: EVE });
    // An unmodified program sees an errno only.
    expect(daemon.stderr).toMatch(new RegExp(`user ${EVE} has \\d+ of .*${logged}`));
    console.log(
      `${name}: ${EVE} took ${taken} (${refusal}); worst ms before and beside:`,
      before,
      beside,
    );
    for (const step of Object.keys(beside) as (keyof Latency)[]) {
      expect(beside[step], step).toBeLessThan(20 * before[step] + patience(2_000));
    }
    await glutton.stop();
    // All of it is returned.
    await until(`what ${EVE} had of ${limit}`, async () => {
      const { health: now } = await queryDaemon(
        'status',
        {},
        { socketPath, allowDaemonUid: owner },
      );
      return now.limits[limit]?.user === undefined;
    });
    await canary.stop();
    await closePeer?.();
  });
});
