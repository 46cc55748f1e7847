import { existsSync, readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OPERATIONS } from '../../daemon/control/operations.ts';
import type { DaemonOptions } from '../../daemon/main/config.ts';
import { DaemonControl } from '../../verbs-api/client/daemon-control.ts';
import { type Connection, connect, listen } from '../../verbs-api/connect.ts';
import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import { Access, SendFlag, WROpcode } from '../../verbs-api/contract/enums.ts';
import type { Provider } from '../../verbs-api/contract/provider.ts';
import { DaemonRig } from '../support/daemon-rig.ts';
import { parseMetrics } from '../support/prometheus-text.ts';

const TOKEN = 'a-token-that-nobody-guesses';

let rig: DaemonRig;

async function start(http: DaemonOptions['http'] = {}): Promise<string> {
  rig = await DaemonRig.start({ http, native: false });
  return rig.daemon.ready.http?.url ?? '';
}

afterEach(async () => {
  await rig.stop();
});

describe('a daemon that answers over HTTP', () => {
  let url: string;

  beforeEach(async () => {
    url = await start();
  });

  it('chooses a port, and tells it in the ready line, the status and the run file', async () => {
    const { http } = rig.daemon.ready;
    expect(http).toEqual({ url, address: '127.0.0.1', port: http?.port, tokenNeeded: false });
    expect(http?.port).toBeGreaterThan(0);
    expect(rig.daemon.status().http).toEqual(http);
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

  it('answers no more once it stops', async () => {
    await rig.daemon.stop();
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
    expect(existsSync(`${rig.socketPath}.run`)).toBe(false);
  });

  it('lets nobody cache, frame or sniff its answers', async () => {
    const { headers } = await fetch(`${url}/status`);
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
    const response = await fetch(`${url}${path}`, { method });
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
    const response = await fetch(`${url}/reset`, { method: 'POST', headers, body });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { status, field } });
  });

  it('a body beyond 64 KiB is refused, whether it tells its length or not', async () => {
    const headers = { 'content-type': 'application/json' };
    const octets = new TextEncoder().encode(`{"x":"${'x'.repeat(70_000)}"}`);
    const streamed = new ReadableStream<Uint8Array>({
      start: (controller) => {
        for (let at = 0; at < octets.length; at += 10_000) {
          controller.enqueue(octets.subarray(at, at + 10_000));
        }
        controller.close();
      },
    });
    for (const init of [{ body: octets }, { body: streamed, duplex: 'half' as const }]) {
      const response = await fetch(`${url}/reset`, { method: 'POST', headers, ...init });
      expect(response.status).toBe(413);
      expect(await response.json()).toMatchObject({ error: { status: 413, field: 'body' } });
    }
  });

  it('takes no body but JSON, so that forms of other pages cannot act', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
      const headers = { 'content-type': type };
      const response = await fetch(`${url}/reset`, { method: 'POST', headers, body: '{}' });
      expect(response.status).toBe(415);
    }
  });
});

describe('what HTTP and the socket tell', () => {
  let url: string;
  let provider: Provider;
  let ends: Connection[];

  beforeEach(async () => {
    url = await start();
    provider = await connectDaemon({ socketPath: rig.socketPath });
    const context = await provider.open();
    const pd = await context.allocPD();
    const mr = await pd.allocMR(64, Access.localWrite);
    const listener = await listen(provider, { host: '127.0.0.1' });
    const accepting = listener[Symbol.asyncIterator]()
      .next()
      .then(({ value }) => value.accept({ pd }));
    const { port } = listener.address;
    const client = await connect(provider, { host: '127.0.0.1', port, pd });
    ends = [client, await accepting];
    const [from, to] = ends;
    to?.qp.postRecv({ sgList: [mr.sge(32, 32)] });
    from?.qp.postSend({
      opcode: WROpcode.send,
      flags: SendFlag.signaled,
      sgList: [mr.sge(0, 32)],
    });
    await from?.cq.wait();
  });

  afterEach(async () => {
    await provider.close();
  });

  it('is the same, and what the schemas describe', async () => {
    const overHttp = new DaemonControl({ url });
    const overSocket = new DaemonControl({ socketPath: rig.socketPath });
    const both = [overHttp, overSocket];
    const lists = ['listDevices', 'listClients', 'listQPs', 'listMRs', 'listCQs'] as const;
    for (const name of lists) {
      const [first, second] = await Promise.all(both.map((control) => control.call(name, {})));
      expect(first, name).toEqual(second);
      expect(first?.length).toBeGreaterThan(0);
      expect(OPERATIONS[name].reply.parse(first)).toEqual(first);
    }
    const connections = await overHttp.connections();
    expect(connections).toEqual(await overSocket.connections());
    expect(OPERATIONS.listConnections.reply.parse(connections)).toEqual(connections);
    const status = await overHttp.status();
    expect(OPERATIONS.status.reply.parse(status)).toEqual(status);
  });

  it('names queue pairs with their states, connections and owners', async () => {
    const control = new DaemonControl({ url });
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

  it('shows in the metrics what moved, message by message', async () => {
    const [from] = ends;
    const rights = Access.localWrite | Access.remoteWrite | Access.remoteRead;
    // Of many FPDUs each, and one message nonetheless.
    const large = await from?.pd.allocMR(100_000, rights);
    if (from === undefined || large === undefined) throw new Error('no connection');
    for (const opcode of [WROpcode.rdmaWrite, WROpcode.rdmaRead]) {
      const remote = { remoteAddr: large.address, rkey: large.rkey };
      from.qp.postSend({ opcode, flags: SendFlag.signaled, sgList: [large.sge()], ...remote });
      expect(await from.cq.wait()).toMatchObject([{ status: 0 }]);
    }
    const samples = parseMetrics(await (await fetch(`${url}/metrics`)).text());
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
    for (const control of [new DaemonControl({ url }), new DaemonControl(rig)]) {
      await expect(control.queuePairs({ pid: -1 })).rejects.toMatchObject({
        name: 'VerbsError',
        code: 'EINVAL',
        message: expect.stringContaining('pid'),
      });
    }
  });
});

describe('a token', () => {
  it('opens everything but the probes', async () => {
    const url = await start({ token: TOKEN });
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

  it('is needed where others can reach the daemon', async () => {
    rig = new DaemonRig();
    for (const address of ['0.0.0.0', '::', '192.0.2.1']) {
      await expect(DaemonRig.start({ http: { address }, native: false })).rejects.toMatchObject({
        code: 'EINVAL',
        message: expect.stringContaining('token'),
      });
    }
  });

  it('allows an address for everybody', async () => {
    await start({ address: '0.0.0.0', token: TOKEN });
    const url = `http://127.0.0.1:${rig.daemon.ready.http?.port}`;
    expect((await fetch(`${url}/status`)).status).toBe(401);
    expect(await new DaemonControl({ url, token: TOKEN }).devices()).toHaveLength(1);
  });
});

describe('an address that is not to be had', () => {
  it('is one line, and leaves nothing behind', async () => {
    await start();
    const port = rig.daemon.ready.http?.port ?? 0;
    const second = new DaemonRig();
    const options = { socketPath: second.socketPath, http: { port }, native: false };
    await expect(DaemonRig.start(options)).rejects.toMatchObject({
      code: 'EADDRINUSE',
      message: expect.stringContaining(`port ${port}`),
    });
    expect(existsSync(second.socketPath)).toBe(false);
    await second.stop();
    const other = DaemonRig.start({ http: { address: '192.0.2.1', token: TOKEN }, native: false });
    await expect(other).rejects.toMatchObject({ code: 'EADDRNOTAVAIL' });
  });
});
