/** Reasons reported for rdma_cm connections that are made wrongly, or fail. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { refusalLine } from '#contract/protocol/refusals';
import { NEGATIVE_ERRNO } from '#test/support/errno';
import { cmCommands as cm, connParam } from '#test/support/kernel-commands';
import { ownAddress } from '#test/support/own-address';
import { RdmaCmRig } from '#test/support/rdma-cm-rig';
import { UverbsRig } from '#test/support/uverbs-rig';

const ADDRESS = ownAddress(40);
const { EINVAL, EADDRNOTAVAIL } = NEGATIVE_ERRNO;
const REJECTED = 8;
const IDLE_QP = 0x11;

let rig: RdmaCmRig;

function open(...devices: readonly ('iwarp' | 'roce')[]): void {
  const addresses = [ADDRESS];
  const configs = devices.map((transport) => ({ name: `${transport}0`, addresses, transport }));
  rig = new RdmaCmRig(new UverbsRig({ devices: configs }), ADDRESS);
}

/** The lines of rdma_cm's refusals so far. */
function lines(): string[] {
  const { refusals } = rig.verbs.refusals.list({}, undefined);
  return refusals.filter(({ verb }) => verb.startsWith('rdma_')).map(refusalLine);
}

/** The number of a queue pair on iWARP; any number on RoCE: only the program knows its meaning. */
function qpn(): number {
  return rig.verbs.file.device.transport === 'roce' ? IDLE_QP : rig.createQP().qpn;
}

afterEach(() => rig.close());

describe.each(['iwarp', 'roce'] as const)('on %s', (transport) => {
  beforeEach(() => open(transport));

  it('a second connect of one id', () => {
    const { port } = rig.listener(1n);
    const active = rig.routed(2n, port);
    rig.must(cm.connect(active, connParam({ qpn: qpn() })));
    expect(rig.write(cm.connect(active, connParam({ qpn: qpn() })))).toBe(EINVAL);
    expect(lines()).toEqual(['rdma_connect: EINVAL: the id is already connecting or connected']);
  });

  it('a connect before the route is known', () => {
    const { port } = rig.listener(1n);
    const active = rig.create(2n);
    rig.must(cm.resolveAddr(active, ADDRESS, port));
    expect(rig.write(cm.connect(active, connParam({ qpn: qpn() })))).toBe(EINVAL);
    expect(lines()).toEqual([
      'rdma_connect: EINVAL: the route must be resolved first (rdma_resolve_route); the id is resolved',
    ]);
  });

  it('a second accept of one request', async () => {
    const { port } = rig.listener(1n);
    rig.must(cm.connect(rig.routed(2n, port), connParam({ qpn: qpn() })));
    const request = await rig.event();
    rig.must(cm.accept(request.id, 3n, connParam({ qpn: qpn() })));
    expect(rig.write(cm.accept(request.id, 3n, connParam({ qpn: qpn() })))).toBe(EINVAL);
    expect(lines()).toEqual([
      expect.stringMatching(/^rdma_accept: EINVAL: the (connect )?request was answered already: /),
    ]);
  });

  it('an accept after the connection has ended', async () => {
    const { port } = rig.listener(1n);
    rig.must(cm.connect(rig.routed(2n, port), connParam({ qpn: qpn() })));
    const request = await rig.event();
    rig.must(cm.reject(request.id, []));
    expect(rig.write(cm.accept(request.id, 3n, connParam({ qpn: qpn() })))).toBe(EINVAL);
    expect(lines()).toContainEqual(
      expect.stringMatching(/^rdma_accept: EINVAL: .*connection.* has (failed or )?ended/),
    );
  });

  it('a port without a listener', async () => {
    const port = rig.freePort();
    const active = rig.routed(2n, port);
    rig.must(cm.connect(active, connParam({ qpn: qpn() })));
    expect(await rig.event()).toMatchObject({ id: active, type: REJECTED });
    expect(lines()).toEqual([
      `rdma_get_cm_event: RDMA_CM_EVENT_REJECTED: connecting to ${ADDRESS} port ${port}: nothing listens there`,
    ]);
  });

  it('no consequence of the end of the program', async () => {
    const active = rig.routed(2n, rig.freePort());
    rig.verbs.client.endingFiles = 1;
    rig.must(cm.connect(active, connParam({ qpn: qpn() })));
    expect(await rig.event()).toMatchObject({ id: active, type: REJECTED });
    rig.verbs.client.endingFiles = 0;
    expect(lines()).toEqual([]);
  });

  it('a port that an id has at every address', () => {
    const first = rig.create(1n);
    rig.must(cm.bind(first, '0.0.0.0', 0));
    const port = rig.must(cm.query(first, 0)).getUint16(18);
    expect(rig.write(cm.bind(rig.create(2n), '0.0.0.0', port))).toBe(EADDRNOTAVAIL);
    expect(lines()).toEqual([
      expect.stringContaining(`port ${port} is in use at 0.0.0.0; choose another port`),
    ]);
  });
});

it('with devices of both wires, a port that an id has at every address', () => {
  open('roce', 'iwarp');
  const id = rig.create(1n);
  rig.must(cm.bind(id, '0.0.0.0', 0));
  const port = rig.must(cm.query(id, 0)).getUint16(18);
  expect(rig.write(cm.bind(rig.create(2n), '0.0.0.0', port))).toBe(EADDRNOTAVAIL);
  expect(lines()).toEqual([
    `rdma_bind_addr: EADDRNOTAVAIL: cannot bind 0.0.0.0 port ${port}: port ${port} is in use at 0.0.0.0; choose another port`,
  ]);
});

it('a connect on iWARP without a queue pair', () => {
  open('iwarp');
  const active = rig.routed(2n, rig.listener(1n).port);
  expect(rig.write(cm.connect(active, connParam({ qpn: 0 })))).toBe(EINVAL);
  expect(lines()).toEqual([
    'rdma_connect: EINVAL: qp_num 0 is no queue pair of this program on iwarp0: call rdma_create_qp first',
  ]);
});

it('an address that no route reaches', async () => {
  open('iwarp');
  const id = rig.create(1n);
  rig.must(cm.resolveAddrFrom(id, [ADDRESS, 0], '192.0.2.77', 7000));
  await rig.event();
  expect(lines()).toEqual([
    expect.stringMatching(/^rdma_get_cm_event: RDMA_CM_EVENT_ADDR_ERROR: /),
  ]);
});
