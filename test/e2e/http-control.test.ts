import {
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { Access, SendFlag, WROpcode } from '#contract/verbs/enums';
import type { Provider } from '#contract/verbs/provider';
import { OPERATIONS } from '#daemon/control/operations';
import type { DaemonConfigInput } from '#daemon/main/config';
import { startDaemon } from '#daemon/main/daemon';
import { QP } from '#daemon/rnic/queue-pair';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { connect, listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import type { Connection } from '#verbs-api/connection';
import { DaemonRig } from '../support/daemon-rig.ts';
import { fetchWith } from '../support/http-token.ts';
import { failure } from '../support/outcomes.ts';
import { parseMetrics } from '../support/prometheus-text.ts';

const TOKEN = 'a-token-that-cannot-be-guessed';

let rig: DaemonRig;
let url: string;

async function start(http: DaemonConfigInput['http'] = {}): Promise<void> {
  rig = await DaemonRig.start({ http, native: false });
  url = rig.daemon.ready.http?.url ?? '';
}

/** As `fetch`, with the token that the daemon made. */
async function ask(address: string, init?: Parameters<typeof fetchWith>[2]): Promise<Response> {
  return await fetchWith(rig.daemon.httpToken ?? '', address, init);
}

/** The control plane over HTTP, with the token. */
function overHttp(): DaemonControl {
  return new DaemonControl({ url, token: rig.daemon.httpToken });
}

afterEach(() => rig.stop());

describe('a daemon that answers over HTTP', () => {
  beforeEach(() => start());

  it('chooses a port and reports it in the ready line, the status and the run file', async () => {
    const { http } = rig.daemon.ready;
    const token = { tokenNeeded: true, tokenFile: `${rig.socketPath}.http-token` };
    expect(http).toEqual({ url, address: '127.0.0.1', port: http?.port, ...token });
    expect(http?.port).toBeGreaterThan(0);
    expect((await rig.daemon.status()).http).toEqual(http);
    expect(JSON.parse(readFileSync(`${rig.socketPath}.run`, 'utf8'))).toMatchObject({ http });
  });

  it('is healthy and ready', async () => {
    for (const [path, text] of [
      ['/healthz', 'ok\n'],
      ['/readyz', 'ready\n'],
    ]) {
      const response = await fetch(`${url}${path}`);
      expect(response.status).toBe(200);
      expect(await response.text()).toBe(text);
      expect((await fetch(`${url}${path}`, { method: 'HEAD' })).status).toBe(200);
    }
  });

  it('stops answering once it shuts down', async () => {
    await rig.daemon.stop();
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
    expect(existsSync(`${rig.socketPath}.run`)).toBe(false);
  });

  it('forbids caching, framing and sniffing of its answers', async () => {
    const { headers } = await ask(`${url}/status`);
    expect(headers.get('cache-control')).toBe('no-store');
    expect(headers.get('x-frame-options')).toBe('DENY');
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(headers.get('access-control-allow-origin')).toBeNull();
  });

  it.each([
    ['GET', '/qps?pid=x', 400, 'query pid'],
    ['GET', '/qps?pid=1&pid=2', 400, 'query pid'],
    ['GET', '/qps?pid=1.5', 400, 'query pid'],
    ['GET', '/mrs?devcie=a', 400, 'query devcie'],
    ['GET', '/cqs?device=', 400, 'query device'],
    ['GET', '/qps?__proto__=1', 400, 'query __proto__'],
    ['GET', '/nothing', 404, 'path'],
    ['GET', '/status/', 404, 'path'],
    ['GET', '/reset', 405, 'method'],
    ['POST', '/status', 405, 'method'],
    ['DELETE', '/qps', 405, 'method'],
    ['OPTIONS', '/reset', 405, 'method'],
    ['PATCH', '/nothing', 404, 'path'],
    ['POST', '/reset?now=1', 400, 'query now'],
  ])('%s %s is refused with %i, naming %s', async (method, path, status, field) => {
    const response = await ask(`${url}${path}`, { method });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({
      error: { status, field, code: expect.stringMatching(/^E[A-Z]+$/), message: /./ },
    });
    if (status === 405) expect(response.headers.get('allow')).toMatch(/^(?:GET|POST)$/);
  });

  it.each([
    ['{', 400, 'body'],
    ['[]', 400, 'body'],
    ['"x"', 400, 'body'],
    ['null', 400, 'body'],
    ['{"hard":true}', 400, 'body hard'],
    [new Uint8Array([0x7b, 0xff, 0x7d]), 400, 'body'],
  ])('a body that is %j is refused with %i, naming %s', async (body, status, field) => {
    const headers = { 'content-type': 'application/json' };
    const response = await ask(`${url}/reset`, { method: 'POST', headers, body });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { status, field } });
  });

  it('refuses a body beyond 64 KiB, with or without a Content-Length', async () => {
    const headers = { 'content-type': 'application/json' };
    const bytes = new TextEncoder().encode(`{"x":"${'x'.repeat(70_000)}"}`);
    const streamed = new ReadableStream<Uint8Array>({
      start: (controller) => {
        for (let at = 0; at < bytes.length; at += 10_000) {
          controller.enqueue(bytes.subarray(at, at + 10_000));
        }
        controller.close();
      },
    });
    for (const init of [{ body: bytes }, { body: streamed, duplex: 'half' as const }]) {
      const response = await ask(`${url}/reset`, { method: 'POST', headers, ...init });
      expect(response.status).toBe(413);
      expect(await response.json()).toMatchObject({ error: { status: 413, field: 'body' } });
    }
  });

  it('takes no body but JSON, so that forms of other pages cannot act', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
      const headers = { 'content-type': type };
      const response = await ask(`${url}/reset`, { method: 'POST', headers, body: '{}' });
      expect(response.status).toBe(415);
    }
  });
});

describe('HTTP and the socket', () => {
  let provider: Provider;
  let ends: Connection[];

  beforeEach(async () => {
    await start();
    provider = await connectDaemon({ socketPath: rig.socketPath });
    const context = await provider.open();
    const pd = await context.allocPD();
    const mr = await pd.allocMR(64, Access.localWrite);
    const listener = await listen(provider, { host: '127.0.0.1' });
    const accepting = listener.accept({ pd });
    const { port } = listener.address;
    const client = await connect(provider, { host: '127.0.0.1', port, pd });
    ends = [client, await accepting];
    const [from, to] = ends;
    to?.qp.postRecv({ sgList: [mr.sge(32, 32)] });
    from?.qp.postSend({ opcode: WROpcode.send, flags: SendFlag.signaled, sgList: [mr.sge(0, 32)] });
    await from?.cq.wait();
  });

  afterEach(() => provider.close());

  it('give the same replies, as the schemas describe them', async () => {
    const both = [overHttp(), new DaemonControl({ socketPath: rig.socketPath })];
    const lists = ['listDevices', 'listClients', 'listQPs', 'listMRs', 'listCQs'] as const;
    for (const name of lists) {
      const [first, second] = await Promise.all(both.map((control) => control.call(name, {})));
      expect(first, name).toEqual(second);
      expect(first?.length).toBeGreaterThan(0);
      expect(OPERATIONS[name].reply.parse(first)).toEqual(first);
    }
    const [connections, same] = await Promise.all(both.map((control) => control.connections()));
    expect(connections).toEqual(same);
    expect(OPERATIONS.listConnections.reply.parse(connections)).toEqual(connections);
    const status = await overHttp().status();
    expect(OPERATIONS.status.reply.parse(status)).toEqual(status);
  });

  it('names queue pairs with their states, connections and owners', async () => {
    const control = overHttp();
    const qps = await control.queuePairs();
    expect(qps.map(({ qpNum }) => qpNum).sort()).toEqual(ends.map(({ qp }) => qp.qpNum).sort());
    const { pid } = process;
    for (const qp of qps) {
      expect(qp).toMatchObject({ pid, program: 'node', device: 'iwarp0', state: 'RTS' });
      expect(qp.connection?.local.address).toBe('127.0.0.1');
    }
    const [one, other] = qps;
    expect(one?.connection?.local).toEqual(other?.connection?.remote);
    expect(await control.queuePairs({ pid: pid + 1 })).toEqual([]);
    expect(await control.queuePairs({ pid, device: 'iwarp0' })).toEqual(qps);
    const roles = (await control.connections()).map(({ role, phase }) => `${role} ${phase}`);
    expect(roles.sort()).toEqual(['initiator established', 'responder established']);
    const [mr] = await control.memoryRegions();
    expect(mr).toMatchObject({ lengthBytes: 64, tier: 'shared', pid });
  });

  it('visits only the queue pairs that it lists', async () => {
    const control = overHttp();
    const [first, second] = await control.queuePairs();
    const looks = vi.spyOn(QP.prototype, 'sendsTaken', 'get');
    onTestFinished(() => looks.mockRestore());
    expect(await control.queuePairs({ offset: 1, limit: 1 })).toEqual([second]);
    expect(looks).toHaveBeenCalledTimes(1);
    expect(await control.queuePairs({ limit: 1 })).toEqual([first]);
    expect(await control.queuePairs({ pid: process.pid + 1 })).toEqual([]);
    expect(looks).toHaveBeenCalledTimes(2);
  });

  it('counts each message in the metrics', async () => {
    const [from] = ends;
    const rights = Access.localWrite | Access.remoteWrite | Access.remoteRead;
    // Many FPDUs each, but one message.
    const large = await from?.pd.allocMR(100_000, rights);
    if (from === undefined || large === undefined) throw new Error('no connection');
    for (const opcode of [WROpcode.rdmaWrite, WROpcode.rdmaRead]) {
      const remote = { remoteAddr: large.address, rkey: large.rkey };
      from.qp.postSend({ opcode, flags: SendFlag.signaled, sgList: [large.sge()], ...remote });
      expect(await from.cq.wait()).toMatchObject([{ status: 0 }]);
    }
    const samples = parseMetrics(await (await ask(`${url}/metrics`)).text());
    expect(samples.get('iwarpd_iw_out_rdma_sends_total{device="iwarp0"}')).toBe(1);
    expect(samples.get('iwarpd_iw_in_rdma_sends_total{device="iwarp0"}')).toBe(1);
    for (const kind of ['out_rdma_writes', 'in_rdma_writes', 'out_rdma_reads', 'in_rdma_reads']) {
      expect(samples.get(`iwarpd_iw_${kind}_total{device="iwarp0"}`), kind).toBe(1);
    }
    expect(samples.get('iwarpd_port_xmit_data_bytes_total{device="iwarp0"}')).toBe(200_032);
    expect(samples.get('iwarpd_port_rcv_data_bytes_total{device="iwarp0"}')).toBe(200_032);
    expect(samples.get('iwarpd_objects{kind="qp"}')).toBe(2);
    expect(samples.get('iwarpd_connections{device="iwarp0",phase="established"}')).toBe(2);
    expect(samples.get('iwarpd_clients')).toBe(1);
  });

  it('refuses a helper with the errno and the field', async () => {
    for (const control of [overHttp(), new DaemonControl(rig)]) {
      await expect(control.queuePairs({ pid: -1 })).rejects.toMatchObject({
        name: 'VerbsError',
        code: 'EINVAL',
        message: expect.stringContaining('pid'),
      });
    }
  });
});

describe('a token', () => {
  it('is needed for everything but the probes', async () => {
    await start({ token: TOKEN });
    expect(rig.daemon.ready.http?.tokenNeeded).toBe(true);
    for (const path of ['/status', '/metrics', '/openapi.json', '/qps', '/nothing']) {
      const response = await fetch(`${url}${path}`);
      expect(response.status, path).toBe(401);
      expect(response.headers.get('www-authenticate')).toMatch(/^Bearer/);
    }
    expect((await fetch(`${url}/reset`, { method: 'POST' })).status).toBe(401);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    await expect(new DaemonControl({ url }).status()).rejects.toMatchObject({ code: 'EACCES' });
    const wrong = new DaemonControl({ url, token: `${TOKEN}!` });
    await expect(wrong.reset()).rejects.toMatchObject({ code: 'EACCES' });
    const control = new DaemonControl({ url, token: TOKEN });
    expect(await control.status()).toMatchObject({ pid: process.pid });
    expect(JSON.stringify(rig.log)).not.toContain(TOKEN);
  });

  it('is created if none is given, readable only by the daemon’s user, and removed with the daemon', async () => {
    await start();
    const file = `${rig.socketPath}.http-token`;
    const { mode, uid } = lstatSync(file);
    expect(mode & 0o777).toBe(0o600);
    expect(uid).toBe(process.getuid?.());
    const token = readFileSync(file, 'utf8').trim();
    expect(token).toMatch(/^[\w-]{43}$/);
    expect(token).toBe(rig.daemon.httpToken);
    for (const path of ['/status', '/metrics', '/openapi.json', '/mrs', '/trace']) {
      expect((await fetch(`${url}${path}`)).status, path).toBe(401);
    }
    expect((await fetchWith(token, `${url}/metrics`)).status).toBe(200);
    expect(JSON.stringify(rig.log)).not.toContain(token);
    expect(readFileSync(`${rig.socketPath}.run`, 'utf8')).not.toContain(token);
    expect(JSON.stringify(rig.daemon.status())).not.toContain(token);
    await rig.daemon.stop();
    expect(existsSync(file)).toBe(false);
  });

  it('is new each time, and never written through a link', async () => {
    rig = new DaemonRig();
    const { socketPath, directory } = rig;
    const victim = join(directory, 'victim');
    writeFileSync(victim, 'precious');
    for (const name of ['.http-token', '.http-token.new', '.run', '.run.new']) {
      symlinkSync(victim, `${socketPath}${name}`);
    }
    symlinkSync(directory, `${socketPath}.sysfs`);
    const first = await startDaemon({ socketPath, http: {}, native: false, logLevel: 'silent' });
    for (const name of ['.http-token', '.run', '.sysfs']) {
      expect(lstatSync(`${socketPath}${name}`).isSymbolicLink(), name).toBe(false);
    }
    const { httpToken } = first;
    await first.stop();
    const second = await startDaemon({ socketPath, http: {}, native: false, logLevel: 'silent' });
    expect(second.httpToken).not.toBe(httpToken);
    await second.stop();
    expect(readFileSync(victim, 'utf8')).toBe('precious');
    expect(readdirSync(directory)).toEqual(['victim']);
  });

  it('of a daemon that was killed does not outlive it', async () => {
    rig = new DaemonRig();
    const { socketPath } = rig;
    writeFileSync(`${socketPath}.http-token`, 'of-an-earlier-daemon');
    const options = { socketPath, native: false, logLevel: 'silent' } as const;
    const daemon = await startDaemon({ ...options, http: { token: TOKEN } });
    expect(existsSync(`${socketPath}.http-token`)).toBe(false);
    await daemon.stop();
  });

  it('is optional on loopback: without it, requests see no keys, addresses or traces', async () => {
    await start({ noToken: true });
    expect(rig.daemon.ready.http?.tokenNeeded).toBe(false);
    expect(existsSync(`${rig.socketPath}.http-token`)).toBe(false);
    await using provider = await connectDaemon({ socketPath: rig.socketPath });
    const pd = await (await provider.open()).allocPD();
    const { lkey, address } = await pd.allocMR(64, Access.remoteWrite | Access.localWrite);
    const anyone = new DaemonControl({ url });
    const owner = new DaemonControl({ socketPath: rig.socketPath });
    expect(await owner.memoryRegions()).toMatchObject([
      { key: lkey, address: `0x${address.toString(16)}` },
    ]);
    const [seen] = await anyone.memoryRegions();
    expect(seen).toMatchObject({ lengthBytes: 64, pid: process.pid });
    expect(Object.keys(seen ?? {})).not.toEqual(expect.arrayContaining(['key']));
    expect(Object.keys(seen ?? {})).not.toEqual(expect.arrayContaining(['address']));
    await expect(anyone.recordTrace({ ms: 1 })).rejects.toMatchObject({ code: 'EACCES' });
    expect((await fetch(`${url}/trace?ms=1`)).status).toBe(403);
    expect(await anyone.faults()).toEqual([]);
    expect((await fetch(`${url}/metrics`)).status).toBe(200);
    expect((await anyone.reset()).clients).toBe(1);
  });

  it('is required if others can reach the daemon', async () => {
    rig = new DaemonRig();
    for (const address of ['0.0.0.0', '::', '192.0.2.1']) {
      const http = { address, noToken: true };
      await expect(DaemonRig.start({ http, native: false })).rejects.toEqual(
        failure('EINVAL', 'token'),
      );
    }
  });

  it('grants access from other addresses, too', async () => {
    await start({ address: '0.0.0.0', token: TOKEN });
    url = `http://127.0.0.1:${rig.daemon.ready.http?.port}`;
    expect((await fetch(`${url}/status`)).status).toBe(401);
    expect(await new DaemonControl({ url, token: TOKEN }).devices()).toHaveLength(2);
  });
});

describe('an unavailable address', () => {
  it('is reported in one line and leaves nothing behind', async () => {
    await start();
    const port = rig.daemon.ready.http?.port ?? 0;
    const second = new DaemonRig();
    const options = { socketPath: second.socketPath, http: { port }, native: false };
    await expect(DaemonRig.start(options)).rejects.toEqual(failure('EADDRINUSE', `port ${port}`));
    expect(existsSync(second.socketPath)).toBe(false);
    await second.stop();
    const other = DaemonRig.start({ http: { address: '192.0.2.1', token: TOKEN }, native: false });
    await expect(other).rejects.toMatchObject({ code: 'EADDRNOTAVAIL' });
  });
});
