/** Requests that a daemon of root refuses other users, as the kernel does. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { QPState, QPType } from '#contract/verbs/enums';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { EmbeddedMemory } from '#daemon/embedded/embedded-memory';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { Capability, firstUnprivilegedPort, hasCapability } from '#native-bridge/libc/privileges';
import { NEGATIVE_ERRNO } from '#test/support/errno';
import { cmCommands as cm, le, plain, commands as uverbs } from '#test/support/kernel-commands';
import { ownAddress } from '#test/support/own-address';
import { SELF } from '#test/support/own-process';
import { RdmaCmRig } from '#test/support/rdma-cm-rig';
import { UverbsRig } from '#test/support/uverbs-rig';

const [IWARP_ADDRESS, ROCE_ADDRESS] = [ownAddress(28), ownAddress(29)];
const STRANGER = (process.getuid?.() ?? 0) + 61_003;
const { EPERM, EACCES } = NEGATIVE_ERRNO;
const [PS_TCP, PS_UDP] = [0x0106, 0x0111];
const GSI_QKEY = 0x8001_0000;
const low = firstUnprivilegedPort() - 1;
const mayBindLow = hasCapability(Capability.netBindService);
const devices = [
  { name: 'iwarp0', addresses: [IWARP_ADDRESS] },
  { name: 'roce0', addresses: [ROCE_ADDRESS], transport: 'roce' as const },
];

function rigOf(uid: number): RdmaCmRig {
  return new RdmaCmRig(new UverbsRig({ devices }, DEFAULT_QUOTAS, { ...SELF, uid }), IWARP_ADDRESS);
}

function contextOf(rig: RdmaCmRig, uid: number): ClientContext {
  return new ClientContext({
    directory: new DeviceDirectory(rig.verbs.host, undefined),
    memory: new EmbeddedMemory(),
    uid,
    sendEvent: () => undefined,
    sendCompletion: () => undefined,
    label: 'test',
  });
}

/** Every way to a local port, through the ABI of the kernel, by device address. */
const WAYS = {
  bind: (id: number, from: string, port: number) => cm.bind(id, from, port),
  bindIp: (id: number, from: string, port: number) => cm.bindIp(id, from, port),
  resolveAddr: (id: number, from: string, port: number) =>
    cm.resolveAddrFrom(id, [from, port], from, 7471),
  resolveIp: (id: number, from: string, port: number) =>
    cm.resolveIpFrom(id, [from, port], from, 7471),
};
const PLACES = [
  ['iWARP', IWARP_ADDRESS, PS_TCP],
  ['RoCE', ROCE_ADDRESS, PS_TCP],
  ['datagrams', ROCE_ADDRESS, PS_UDP],
  ['both wires', '0.0.0.0', PS_TCP],
] as const;

describe.runIf(low > 0)('a port that is not for every user', () => {
  let rig: RdmaCmRig;

  afterEach(() => rig.close());

  it.each(PLACES)('is refused to another user by every command: %s', (_, address, portSpace) => {
    rig = rigOf(STRANGER);
    const client = contextOf(rig, STRANGER);
    for (const [name, write] of Object.entries(WAYS)) {
      const id = rig.create(1n, rig.file, portSpace);
      expect(rig.write(write(id, address, low)), name).toBe(EACCES);
      expect(rig.write(write(id, address, low + 1)), name).toBe(0);
      rig.must(cm.destroyId(id));
    }
    const local = { address, port: low };
    const create = () => client.execute('cmCreateId', { datagrams: portSpace === PS_UDP }).id;
    const denied = expect.objectContaining({ code: 'EACCES' });
    expect(() => client.execute('cmBindAddr', { id: create(), address: local })).toThrow(denied);
    const dial = { destination: { address, port: 7471 }, source: local, timeoutMs: 1000 };
    expect(() => client.execute('cmResolveAddr', { id: create(), ...dial })).toThrow(denied);
    client.close();
  });

  it.runIf(mayBindLow).each(PLACES)('is granted to an entitled owner: %s', (_, address, space) => {
    rig = rigOf(SELF.uid);
    const id = rig.create(1n, rig.file, space);
    rig.must(cm.bind(id, address, low));
    rig.must(cm.listen(id));
  });
});

describe('a Q_Key with its highest bit set', () => {
  let rig: RdmaCmRig;

  beforeEach(() => {
    rig = rigOf(STRANGER);
  });

  afterEach(() => rig.close());

  it('is refused to another user, and others are not', () => {
    const client = contextOf(rig, STRANGER);
    const { context } = client.execute('openDevice', { name: 'roce0' });
    const { pd } = client.execute('allocPD', { context });
    const { cq } = client.execute('createCQ', { context, cqe: 16, channel: undefined });
    const sizes = { maxSendWr: 1, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
    const queues = { pd, sendCQ: cq, recvCQ: cq, srq: undefined, capabilities: sizes };
    const { qp } = client.execute('createQP', { ...queues, sqSigAll: false, type: QPType.ud });
    const toInit = (qkey: number) => () => {
      const attributes = { pkeyIndex: 0, portNum: 1, qkey };
      client.execute('modifyQP', { qp, state: QPState.INIT, attributes });
    };
    expect(toInit(GSI_QKEY)).toThrow(expect.objectContaining({ code: 'EPERM' }));
    expect(toInit(0x7fff_ffff)).not.toThrow();
    client.close();
  });
});

describe('a Q_Key with its highest bit set, at the ABI of the kernel', () => {
  const device = { name: 'roce0', addresses: [ROCE_ADDRESS], transport: 'roce' as const };
  let rig: UverbsRig;

  afterEach(() => rig.close());

  it.each([
    ['is refused to another user', STRANGER, EPERM],
    ...(hasCapability(Capability.netRaw) ? [['is root’s to use', SELF.uid, 0] as const] : []),
  ] as const)('%s', (_, uid, status) => {
    rig = new UverbsRig({ devices: [device] }, DEFAULT_QUOTAS, { ...SELF, uid });
    rig.must(uverbs.getContext());
    const pd = rig.create(uverbs.allocPD());
    const cq = rig.create(uverbs.createCQ(1n, 16));
    const reply = rig.must(uverbs.createQP({ pd, sendCQ: cq, recvCQ: cq, type: 4 }));
    const handle = reply.getUint32(0, true);
    const toInit = (qkey: number) =>
      // State, P_Key index, port and Q_Key.
      plain(26, 0, `00*64 ${le(handle)} ${le(0x71)} ${le(qkey)} 00*20 ${le(1, 1)} 00*7 01 00*7`);
    expect(rig.write(toInit(GSI_QKEY)).status).toBe(status);
    expect(rig.write(toInit(0x1111_1111)).status).toBe(0);
  });
});
