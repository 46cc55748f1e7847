/** Faults on the command line and over HTTP. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { FAULT_KINDS } from '#contract/protocol/faults';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { fetchWith, madeToken } from '../support/http-token.ts';

const folder = new CommandFolder();
let socket: string;
let url: string;

beforeAll(async () => {
  socket = folder.file('d/iwarpd.sock');
  const daemon = await folder.daemon(socket, [
    '--no-native',
    ...['--device', 'iwarp0', '--device', 'roce0=roce:127.0.0.2'],
    ...['--http', '127.0.0.1:0'],
  ]);
  url = /http:\/\/127\.0\.0\.1:[0-9]+/.exec(daemon.stdout)?.[0] ?? '';
});

afterEach(() => new DaemonControl({ socketPath: socket }).removeFaults());

afterAll(() => folder.clean());

const fault = (...words: readonly string[]) => runCommand(['fault', ...words, '--socket', socket]);

describe('iwarpd fault', () => {
  it('adds, lists and removes faults', async () => {
    const given = ['delay', '--ms', '5', '--direction', 'out', '--every', '2', '--once'];
    const first = await fault('add', ...given);
    expect(first).toMatchObject({ status: 0, stderr: '' });
    expect(first.stdout).toMatch(/^fault \d+: delay direction out, every 2, once, ms 5\n$/);
    const id = /\d+/.exec(first.stdout)?.[0] ?? '';
    const json = await fault('add', 'errno', '--errno', 'EIO', '--probability', '.5', '--json');
    const added = JSON.parse(json.stdout);
    expect(added).toEqual({
      format: 1,
      id: Number(id) + 1,
      spec: { kind: 'errno', errno: 'EIO', probability: 0.5, seed: added.spec.seed },
      matched: 0,
      fired: 0,
    });
    expect(added.spec.seed).toBeTypeOf('number');
    const { stdout } = await fault('list');
    expect(stdout).toMatch(
      /^id +fault +occasions +triggered\n\d+ +delay .*0 +0\n\d+ +errno .*0 +0\n$/,
    );
    const removed = await fault('remove', id);
    expect(removed.stdout).toMatch(/^removed fault \d+: delay .*; it triggered 0 times\n$/);
    const { format, ...status } = added;
    const listed = JSON.parse((await fault('list', '--json')).stdout);
    expect(listed).toEqual({ format, faults: [status] });
    expect((await fault('remove', '--all')).stdout).toMatch(/^removed fault \d+: /);
    expect((await fault('list')).stdout).toBe('no faults\n');
  });

  it('takes every field of a fault as an option', async () => {
    const scope = ['--device', 'iwarp0', '--qp', '7', '--peer', '[::1]:99', '--opcode', 'send'];
    const limits = ['--nth', '3', '--probability', '1', '--seed', '4', '--bytes-per-second', '9'];
    const { stdout } = await fault('add', 'bandwidth', ...scope, ...limits, '--json');
    expect(JSON.parse(stdout).spec).toEqual({
      kind: 'bandwidth',
      device: 'iwarp0',
      qp: 7,
      peer: '[::1]:99',
      opcode: 'send',
      nth: 3,
      probability: 1,
      seed: 4,
      bytesPerSecond: 9,
    });
  });

  it('takes the kinds of packets', async () => {
    const words = ['nak', '--syndrome', 'remote-access', '--device', 'roce0', '--direction', 'in'];
    expect((await fault('add', ...words, '--nth', '3')).stdout).toMatch(
      /^fault \d+: nak device roce0, direction in, nth 3, syndrome remote-access\n$/,
    );
    const drop = await fault('add', 'drop', '--opcode', 'acknowledge', '--probability', '0.1');
    expect(drop.stdout).toMatch(
      /^fault \d+: drop opcode acknowledge, probability 0.1, seed \d+\n$/,
    );
  });

  it.each([
    [['add', 'flood'], 2, "unknown fault kind 'flood'; see `iwarpd fault add --help`"],
    [['add', 'delay'], 2, 'fault `delay` requires --ms'],
    [['add', 'delay', '--ms', '0'], 2, '--ms: must be greater than 0'],
    [['add', 'errno', '--errno', 'EGG'], 2, '--errno: must be '],
    [['add', 'errno', '--errno', 'EIO', '--verb', 'fly'], 2, '--verb: must be openDevice, '],
    [['add', 'errno', '--errno', 'EIO', '--verb', 'regMr'], 2, '(Did you mean regMR?)'],
    [['add', 'errno', '--errno', 'EIO', '--verb', 'ibv_regmr'], 2, '(Did you mean ibv_reg_mr?)'],
    [['add', 'delay', '--ms', '1', '--opcode', 'raed'], 2, '(Did you mean read-request?)'],
    [['add', 'delay', '--ms', 'x'], 2, '--ms'],
    [['add', 'delay', '--ms', '1', '--probability', '1.5'], 2, '--probability'],
    [['add', 'delay', '--ms', '1', '--device', 'none'], 1, 'device'],
    [['add', 'delay', '--ms', '1', '--peer', 'here'], 1, 'peer'],
    [['add', 'delay', '--ms', '1', '--verb', 'regMR'], 2, '--verb'],
    [['add', 'drop', '--opcode', 'mpa-reply'], 2, '--opcode: drop takes opcodes of RoCE packets'],
    [['add', 'nak'], 2, 'fault `nak` requires --syndrome'],
    [['add', 'drop', '--device', 'iwarp0'], 1, 'drop acts on RoCE devices, and iwarp0 is iWARP'],
    [['add', 'slice', '--bytes', '1', '--device', 'roce0'], 1, 'slice acts on iWARP devices'],
    [['add'], 2, 'KIND'],
    [['remove'], 2, '--all'],
    [['remove', '1', '--all'], 2, '--all'],
    [['remove', '99999'], 1, '99999'],
  ])('%j is refused in one line that names the mistake', async (words, status, named) => {
    const refused = await fault(...words);
    expect(refused).toMatchObject({ status, stdout: '' });
    expect(refused.stderr).toMatch(/^iwarpd: [^\n]+\n$/);
    expect(refused.stderr).toContain(named);
  });

  it.each(['regMR', 'ibv_reg_mr'])(
    'takes verbs by their names in TypeScript and C: %s',
    async (name) => {
      const { stdout, stderr } = await fault('add', 'errno', '--errno', 'EIO', '--verb', name);
      expect(stderr).toBe('');
      const [line, id = ''] = /^fault (\d+): errno verb regMR, errno EIO\n$/.exec(stdout) ?? [];
      expect(line, stdout).toBe(stdout);
      await fault('remove', id);
    },
  );

  it('lists all kinds with their parameters', async () => {
    const { stdout } = await runCommand(['fault', 'add', '--help']);
    for (const [kind, { summary }] of Object.entries(FAULT_KINDS)) {
      expect(stdout).toContain(kind);
      expect(stdout).toContain(summary);
    }
    expect(stdout).toMatch(/bandwidth +.*: --bytes-per-second\n/);
    expect(stdout).toMatch(/stall +.*: \[--ms\]\n/);
  });

  it('is undone by reset', async () => {
    await fault('add', 'stall');
    const { stdout } = await runCommand(['reset', '--socket', socket]);
    expect(stdout).toContain('removed 1 fault\n');
    expect((await fault('list')).stdout).toBe('no faults\n');
  });
});

describe('faults over HTTP', () => {
  async function request(method: string, path: string, body?: unknown) {
    const init = body === undefined ? { method } : { method, body: JSON.stringify(body) };
    const headers = { 'content-type': 'application/json' };
    const response = await fetchWith(madeToken(socket), `${url}${path}`, { ...init, headers });
    return { status: response.status, value: await response.json() };
  }

  it('are added, listed and removed', async () => {
    const spec = { kind: 'mpa-late', ms: 20, nth: 2 };
    const added = await request('POST', '/faults', spec);
    const { id } = added.value as { id: number };
    const status = { id, spec, matched: 0, fired: 0 };
    expect(added).toEqual({ status: 200, value: status });
    expect(await request('GET', '/faults')).toEqual({ status: 200, value: [status] });
    expect(await request('DELETE', `/faults/${id}`)).toEqual({ status: 200, value: status });
    expect(await request('DELETE', '/faults')).toEqual({ status: 200, value: [] });
  });

  it.each([
    ['POST', '/faults', { kind: 'delay' }, 400, 'body ms'],
    ['POST', '/faults', { kind: 'delay', ms: 1, device: 'none' }, 400, 'body device'],
    ['POST', '/faults', { kind: 'delay', ms: 1, peer: '1.2.3' }, 400, 'body peer'],
    ['POST', '/faults', { kind: 'delay', ms: 1, speed: 1 }, 400, 'body speed'],
    ['POST', '/faults', { kind: 'rnr', device: 'iwarp0' }, 400, 'body kind'],
    ['POST', '/faults', { kind: 'nak', syndrome: 'rude' }, 400, 'body syndrome'],
    ['POST', '/faults', {}, 400, 'body kind'],
    ['DELETE', '/faults/x', undefined, 400, 'path id'],
    ['DELETE', '/faults/77777', undefined, 404, ''],
  ])('%s %s %j is %i for the field %s', async (method, path, body, status, field) => {
    expect(await request(method, path, body)).toMatchObject({
      status,
      value: { error: { status, field } },
    });
  });
});
