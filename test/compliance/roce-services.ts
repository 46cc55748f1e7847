import { expect, it } from 'vitest';
import { ConnectionRejectedError } from '#contract/verbs/connect-errors';
import {
  Access,
  CMEventType,
  QPState,
  QPType,
  RDMA_UDP_QKEY,
  WCFlag,
  WROpcode,
} from '#contract/verbs/enums';
import { GRH_BYTES } from '#contract/verbs/gid';
import type { Provider } from '#contract/verbs/provider';
import {
  type DatagramEndpoint,
  listenDatagrams,
  type OwnedDestination,
  openDatagrams,
  resolveDatagrams,
} from '#verbs-api/datagrams';
import { quiet } from '../support/patience.ts';
import {
  completions,
  DEVICE,
  patience,
  type StartedFixture,
  SUCCESS,
  verbsError,
} from '../support/provider-fixture.ts';
import { ROCE_DEVICE, readyForDatagrams, roceSide } from '../support/roce-fixture.ts';

const ADDRESS = ROCE_DEVICE.addresses[0];
const IPV6 = ROCE_DEVICE.addresses[1];
const GROUP = '239.1.2.3';

/** A receive buffer of an endpoint, and the next datagram in it. */
async function mailbox({ pd, qp, cq }: DatagramEndpoint) {
  const mr = await pd.allocMR(256, Access.localWrite);
  const { buffer } = mr;
  qp.postRecv({ wrId: 1, sgList: [mr.sge()] });
  return {
    async next() {
      for (;;) {
        const [wc] = await completions(cq);
        if (wc?.wrId !== 1n) continue;
        expect(wc).toMatchObject({ ...SUCCESS, wcFlags: WCFlag.grh });
        const text = Buffer.from(buffer.subarray(GRH_BYTES, wc.byteLen)).toString();
        return { wc, text, grh: buffer };
      }
    },
  };
}

function say({ qp }: DatagramEndpoint, text: string, ud: OwnedDestination): void {
  qp.postSend({ opcode: WROpcode.send, inlineData: Buffer.from(text), ud });
}

/** A service at a free port, and a function that finds it. */
async function served(server: Provider, client: Provider, host: string = ADDRESS) {
  const listener = await listenDatagrams(server, { host });
  const { port } = listener.address;
  const find = (privateData?: Uint8Array) => {
    return resolveDatagrams(client, { host, port, privateData, signal: patience() });
  };
  return { listener, find, [Symbol.asyncDispose]: () => listener.close() };
}

/** Datagram services and multicast groups. */
export function serviceCases(fixture: () => StartedFixture): void {
  it.each([ADDRESS, IPV6])(
    'of %s are found, and reply [IBV-AH-04, ROCE-UD-14, IBCM-SIDR-02, IBCM-SIDR-03]',
    async (host) => {
      const { server, client } = fixture();
      await using service = await served(server, client, host);
      const accepting = service.listener.accept({ privateData: Buffer.from('yes') });
      await using found = await service.find(Buffer.from('who'));
      await using end = await accepting;
      expect(found.destination).toMatchObject({
        remoteQpNum: end.qp.qpNum,
        remoteQkey: RDMA_UDP_QKEY,
      });
      expect(found.privateData).toHaveLength(136);
      expect(Buffer.from(found.privateData.subarray(0, 4)).toString()).toBe('yes\0');
      expect([found.qp.type, (await found.qp.query()).state]).toEqual([QPType.ud, QPState.RTS]);
      expect(end.id.device).toBe(ROCE_DEVICE.name);
      expect(end.id.peerAddress).toEqual(found.id.localAddress);
      const [questions, answers] = [await mailbox(end), await mailbox(found)];
      say(found, 'question', found.destination);
      const question = await questions.next();
      expect(question).toMatchObject({ text: 'question', wc: { srcQp: found.qp.qpNum } });
      const back = await end.answerTo(question.wc, question.grh);
      say(end, 'answer', back);
      expect((await answers.next()).text).toBe('answer');
      expect(() => end.id.disconnect()).not.toThrow();
    },
  );

  it('serve any number of peers with one queue pair and its Q_Key', async () => {
    const { server, client } = fixture();
    await using service = await served(server, client);
    await using side = await roceSide(server, QPType.ud);
    await readyForDatagrams(side.qp, 0x77);
    const serving = (async () => {
      let left = 2;
      for await (const request of service.listener) {
        expect(request.privateData).toHaveLength(180);
        await request.answer(side.qp, { qkey: 0x77, privateData: request.privateData.slice(0, 5) });
        left -= 1;
        if (left === 0) return;
      }
    })();
    for (const name of ['first', 'other']) {
      await using found = await service.find(Buffer.from(name));
      expect(Buffer.from(found.privateData.subarray(0, 5)).toString()).toBe(name);
      expect(found.destination).toMatchObject({ remoteQpNum: side.qp.qpNum, remoteQkey: 0x77 });
      side.qp.postRecv({ sgList: [side.mr.sge(0, 128)] });
      say(found, name, found.destination);
      expect(await completions(side.cq)).toMatchObject([{ ...SUCCESS, byteLen: GRH_BYTES + 5 }]);
    }
    await serving;
  });

  it('are refused without a server, or if the server rejects [IBCM-SIDR-04]', async () => {
    const { server, client } = fixture();
    await using service = await served(server, client);
    const unserved = resolveDatagrams(client, { host: ADDRESS, port: 9 });
    await expect(unserved).rejects.toThrow(
      `cannot find the datagram service at ${ADDRESS} port 9: no datagram service at that port`,
    );
    await expect(unserved).rejects.toBeInstanceOf(ConnectionRejectedError);
    const finding = service.find();
    const { id } = await service.listener.id.nextEvent({ signal: patience() });
    await id.reject(Buffer.from('no'));
    await id.close();
    const error = await finding.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    if (!(error instanceof ConnectionRejectedError)) throw new Error(`${String(error)}`);
    expect(error.message).toContain('the service rejected the request');
    expect(Buffer.from(error.event.privateData.subarray(0, 3)).toString()).toBe('no\0');
    expect(error.event.type).toBe(CMEventType.unreachable);
  });

  it('limit private data to 180 bytes in a request and 136 in a reply [IBCM-SIDR-06]', async () => {
    const { server, client } = fixture();
    await using service = await served(server, client);
    await expect(service.find(new Uint8Array(181))).rejects.toEqual(verbsError('EINVAL'));
    const accepting = service.listener.accept({ privateData: new Uint8Array(137) });
    const finding = service.find(new Uint8Array(180));
    await expect(accepting).rejects.toEqual(verbsError('EINVAL'));
    await expect(finding).rejects.toEqual(verbsError('ECONNREFUSED'));
  });

  it('are accepted with a UD queue pair of their device', async () => {
    const { server, client } = fixture();
    await using service = await served(server, client);
    await using side = await roceSide(server, QPType.rc);
    const finding = service.find();
    const { id } = await service.listener.id.nextEvent({ signal: patience() });
    await expect(id.accept({ qp: side.qp })).rejects.toEqual(verbsError('EINVAL'));
    await expect(id.accept()).rejects.toEqual(verbsError('EINVAL'));
    const { qp } = side;
    const init = { type: QPType.rc, sendCQ: side.cq, recvCQ: side.cq, maxSendWr: 1, maxRecvWr: 1 };
    await expect(id.createQP(side.pd, init)).rejects.toEqual(verbsError('EINVAL'));
    await using own = await side.pd.createQP({ ...init, type: QPType.ud });
    await expect(id.accept({ qp: own, qkey: -1 })).rejects.toEqual(verbsError('EINVAL'));
    expect(qp.type).toBe(QPType.rc);
    await id.accept({ qp: own });
    await using found = await finding;
    expect(found.destination.remoteQpNum).toBe(own.qpNum);
    await expect(id.accept({ qp: own })).rejects.toEqual(verbsError('EINVAL'));
    await id.close();
  });

  it('are looked up until the call is aborted or times out', async () => {
    const { server, client } = fixture();
    await using service = await served(server, client);
    const { port } = service.listener.address;
    const controller = new AbortController();
    const { signal } = controller;
    const finding = resolveDatagrams(client, { host: ADDRESS, port, signal });
    const { id } = await service.listener.id.nextEvent({ signal: patience() });
    controller.abort(new Error('enough'));
    await expect(finding).rejects.toThrow('enough');
    await id.close();
    await expect(resolveDatagrams(client, { host: ADDRESS, port, timeoutMs: 20 })).rejects.toEqual(
      verbsError('ETIMEDOUT'),
    );
    await using idle = await listenDatagrams(server, { host: ADDRESS });
    await expect(idle.accept({ timeoutMs: 0 })).rejects.toEqual(verbsError('ETIMEDOUT'));
  });

  it('reject waiting clients when they close [IBCM-SM-04]', async () => {
    const { server, client } = fixture();
    const service = await served(server, client);
    const finding = service.find();
    await quiet(20);
    await service.listener.close();
    await expect(finding).rejects.toEqual(verbsError('ECONNREFUSED'));
  });

  it('share no ports with connections', async () => {
    const { server, client } = fixture();
    await using service = await served(server, client);
    const { port } = service.listener.address;
    await using id = await server.createId();
    await id.bindAddr({ address: ADDRESS, port });
    await expect(listenDatagrams(server, { host: ADDRESS, port })).rejects.toEqual(
      verbsError('EADDRINUSE'),
    );
  });

  it('use the RoCE device at an address that an iWARP device also has', async () => {
    const { server } = fixture();
    await using listener = await listenDatagrams(server, { host: DEVICE.addresses[0] });
    expect(listener.id.device).toBe(ROCE_DEVICE.name);
  });

  it('reach every member of a group [ROCE-MC-01]', async () => {
    const { server, client } = fixture();
    await using one = await openDatagrams(server, { host: ADDRESS });
    await using two = await openDatagrams(client, { host: ADDRESS });
    const boxes = [await mailbox(one), await mailbox(two)];
    await one.join(GROUP);
    const everyone = await two.join(GROUP);
    expect(everyone.remoteQpNum).toBe(0xff_ffff);
    say(two, 'all', everyone);
    for (const box of boxes) expect((await box.next()).text).toBe('all');
    await one.leave(GROUP);
    await expect(one.leave(GROUP)).rejects.toEqual(verbsError('EINVAL'));
    await expect(one.join('here')).rejects.toEqual(verbsError('EINVAL'));
    await expect(one.join(ADDRESS)).rejects.toEqual(verbsError('EINVAL'));
  });

  it('leave no objects behind except those of the program', async () => {
    const { server, client } = fixture();
    await using side = await roceSide(client, QPType.ud);
    await using service = await served(server, client);
    for (let round = 0; round < 3; round += 1) {
      const accepting = service.listener.accept();
      const { port } = service.listener.address;
      const { pd, cq } = side;
      const found = await resolveDatagrams(client, { host: ADDRESS, port, pd, cq });
      expect([found.pd, found.cq]).toEqual([pd, cq]);
      await found.close();
      await found.close();
      await (await accepting).close();
    }
    await side.qp.close();
    await side.mr.close();
    await side.pd.close();
    await side.cq.close();
  });
}
