/**
 * Ceph's messenger over RDMA: a monitor and three OSDs on one device, which keep objects in memory, and the
 * clients that read and write them.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { afterEach, expect, it } from 'vitest';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import { CommandFolder, type RunningCommand, runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';

const OSDS = ['0', '1', '2'] as const;
const POOL = 'objects';
const OBJECT_BYTES = 3_000_001;
/** The default, 20 s, is the time that a client waits for an OSD that has died. */
const GRACE_SECONDS = 6;
/** Buffers of each process: as many as its queue pairs need, in 64 MiB instead of Ceph's gigabytes. */
const BUFFERS = ['ms async rdma receive buffers = 8192', 'ms async rdma buffer size = 8192'];

const folder = new CommandFolder();
const running = new Map<string, RunningCommand>();
const socket = () => folder.file('d/s');

afterEach(async () => {
  objects.clear();
  await Promise.all([...running.keys()].map((name) => kill(name)));
  await folder.clean();
});

/**
 * Ceph's administration may ask before it knows the cluster's id, which the monitor refuses ("wrong fsid"):
 * then again.
 */
const PRELUDE = `ceph() {
  until command ceph "$@" 2>complaint; do
    grep -q 'problem getting command descriptions' complaint || { cat complaint >&2; exit 1; }
  done
}`;

/** The output of a shell script that must succeed, in the cluster's folder. */
async function succeed(script: string): Promise<string> {
  const shell = ['sh', '-ec', `cd ${folder.path}\n${PRELUDE}\n${script}`];
  const words = ['run', '--socket', socket(), '--', ...shell];
  const { status, stdout, stderr } = await runCommand(words, environment());
  expect(status, `${script}: ${stderr}`).toBe(0);
  return stdout;
}

function environment(): Record<string, string> {
  return { CEPH_CONF: folder.file('ceph.conf') };
}

/** Starts one of Ceph's daemons in the foreground. */
function start(name: string, program: string, id: string): void {
  const words = ['run', '--socket', socket(), '--', program, '-f', '-i', id];
  running.set(name, folder.start(words, environment()));
}

/** Kills one of Ceph's daemons: a killed `run` would leave it running. */
async function kill(name: string): Promise<void> {
  const command = running.get(name);
  running.delete(name);
  try {
    process.kill(Number(readFileSync(folder.file(`${name}.pid`), 'utf8')), 'SIGKILL');
  } catch {
    // It has not started, or has ended.
  }
  await command?.end();
}

async function startCluster(device: string, messenger: readonly string[]): Promise<void> {
  await folder.daemon(socket(), ['--device', device]);
  const monitor = `v1:127.0.0.1:${await freePort()}`;
  const fsid = randomUUID();
  const lines = [
    ...['[global]', `fsid = ${fsid}`, `mon host = ${monitor}`, 'public addr = 127.0.0.1'],
    ...['cluster', 'service', 'client'].map((whose) => `auth ${whose} required = none`),
    ...[`run dir = ${folder.path}`, `keyring = ${folder.file('keyring')}`],
    ...[`admin socket = ${folder.file('$name.asok')}`, `pid file = ${folder.file('$name.pid')}`],
    ...[`log file = ${folder.file('$name.log')}`, `mon data = ${folder.file('mon')}`],
    ...[`osd data = ${folder.file('osd$id')}`, 'osd objectstore = memstore'],
    ...['osd pool default size = 3', 'osd pool default min size = 2'],
    // An OSD that asks the monitor for its place at its start may ask too early, too.
    ...['osd class update on start = false', 'osd crush update on start = false'],
    ...['osd crush chooseleaf type = 0', 'mon osd min down reporters = 1'],
    `osd heartbeat grace = ${GRACE_SECONDS}`,
    ...['ms type = async+rdma', 'ms bind msgr2 = false', ...messenger, ...BUFFERS],
  ];
  writeFileSync(folder.file('ceph.conf'), `${lines.join('\n')}\n`);

  await succeed(`monmaptool --create --fsid ${fsid} --addv a ${monitor} map
    ceph-mon --mkfs -i a --monmap map`);
  start('mon.a', 'ceph-mon', 'a');
  await succeed(`for id in ${OSDS.join(' ')}; do
      mkdir osd$id
      ceph osd create
      ceph osd crush add $id 1 root=default
      ceph-osd -i $id --mkfs
    done
    ceph osd pool create ${POOL} 8`);
  for (const id of OSDS) start(`osd.${id}`, 'ceph-osd', id);
  await osdsUp(OSDS.length);
}

async function osdsUp(count: number): Promise<void> {
  const up = `ceph osd stat | grep -q ' ${count} up'`;
  await succeed(`until ${up}; do sleep 0.5; done`);
}

/** Objects in the pool, and what they must contain. */
const objects = new Map<string, Buffer>();

async function put(...names: readonly string[]): Promise<void> {
  for (const name of names) {
    const bytes = randomBytes(OBJECT_BYTES);
    objects.set(name, bytes);
    writeFileSync(folder.file(name), bytes);
  }
  await succeed(`for name in ${names.join(' ')}; do rados -p ${POOL} put $name $name; done`);
}

async function checkAll(): Promise<void> {
  const names = [...objects.keys()];
  await succeed(`for name in ${names.join(' ')}; do rados -p ${POOL} get $name $name.out; done`);
  for (const [name, bytes] of objects) {
    expect(readFileSync(folder.file(`${name}.out`)).equals(bytes), name).toBe(true);
  }
}

/** The device carried every object three times at least: to its OSD, and from there to both others. */
async function checkCarried(): Promise<void> {
  const { stdout } = await runCommand(['status', '--json', '--socket', socket()]);
  const status: DaemonStatus = JSON.parse(stdout);
  const placed = status.devices[0]?.counters['placed_bytes'];
  expect(placed).toBeGreaterThan(3 * objects.size * OBJECT_BYTES);
}

const ROCE = ['ms async rdma device name = roce0', 'ms async rdma gid idx = 1'];
const IWARP = [
  ...['ms async rdma device name = iwarp0', 'ms async rdma type = iwarp'],
  'ms async rdma cm = true',
];

describeWith(['ceph'], 'Ceph', () => {
  it.each([
    ['RoCE, though packets are lost', 'roce0=roce', ROCE, ['--probability', '0.002']],
    ['iWARP', 'iwarp0=127.0.0.1', IWARP, []],
  ])('stores objects over %s', async (_, device, messenger, loss) => {
    await startCluster(device, messenger);
    if (loss.length > 0) {
      const words = ['fault', 'add', 'drop', ...loss, '--socket', socket()];
      expect((await runCommand(words)).status).toBe(0);
    }
    await put('first', 'second');
    await checkAll();
    await checkCarried();
  });

  it('stores objects when an OSD has died, and returns all', async () => {
    await startCluster('roce0=roce', ROCE);
    await put('before', 'also-before');
    await kill('osd.1');
    // Until the others miss its heartbeats, clients wait for it.
    await put('after', 'also-after');
    await osdsUp(OSDS.length - 1);
    await checkAll();
    await checkCarried();
  });
});
