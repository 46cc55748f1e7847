import { describe, expect, it } from 'vitest';
import { SQOpcode } from '#contract/protocol/queue-layout';
import type { QueuePairName } from '#contract/protocol/tap-records';
import type { TraceRequest } from '#contract/protocol/trace-sample';
import type { LinkAddresses } from '#daemon/capture/capture-tap';
import { TapHub } from '#daemon/capture/tap-hub';
import { TraceSampler } from '#daemon/capture/trace-sampler';
import { WorkHub } from '#daemon/capture/work-hub';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { crc32 } from '#daemon/roce/wire/crc32';
import { bytesOf } from '#test/support/hex';
import { NicRig } from '#test/support/nic-rig';

// Written by hand after RFC 5044 §7.1 and RFC 5041 §4: revision 1, no CRC, markers in the second.
const REQUEST = bytesOf('4d504120494420526571204672616d65 00 01 0000');
const MARKED_REQUEST = bytesOf('4d504120494420526571204672616d65 80 01 0000');
const REPLY = bytesOf('4d504120494420526570204672616d65 00 01 0000');
/** A Send of the bytes aabb: QN 0, MSN 1, MO 0, last; padded, with an unrequested CRC. */
const SEND = bytesOf('0014 41 43 00000000 00000000 00000001 00000000 aabb 0000 00000000');
const ENDS: LinkAddresses = {
  localAddress: '127.0.0.2',
  localPort: 5000,
  remoteAddress: '127.0.0.3',
  remotePort: 7000,
  dialed: true,
  emssBytes: 1460,
};

class World {
  readonly links = new TapHub();
  readonly rig = new NicRig();
  readonly work = new WorkHub([{ name: 'a', watch: this.rig.nic.watch }]);
  readonly heldInput = undefined;
  readonly congested = false;
  queuePair: QueuePairName | undefined = { device: 'a', qpn: this.rig.qp.qpn };
  fullTimes = 0;
  now = 1_000_000;

  link() {
    return this.links.opened(ENDS, this);
  }

  sampler(request: TraceRequest = {}): TraceSampler {
    const sampler = new TraceSampler({
      request,
      crc32c,
      crc32,
      nowMicros: () => {
        this.now += 1;
        return this.now;
      },
      onFull: () => {
        this.fullTimes += 1;
      },
    });
    sampler.begin(this.links, this.work);
    return sampler;
  }

  send(wrId: number): void {
    this.rig.send({ opcode: SQOpcode.send, wrId, inline: Uint8Array.of(0xaa, 0xbb) });
  }
}

describe('a sample', () => {
  it('lists work and frames in the order they came, each with its details', () => {
    const world = new World();
    const sampler = world.sampler();
    const tap = world.link();
    tap.outbound(REQUEST);
    tap.inbound(REPLY);
    world.send(0x1f);
    tap.outbound(SEND);
    tap.finished('peer');
    const { records, lost } = sampler.end();
    const { qpn } = world.rig.qp;
    const onLink = { device: 'a', qpn, link: 1 };
    expect(lost).toBe(0);
    expect(records.map(({ micros: _, ...rest }) => rest)).toEqual([
      { ...onLink, kind: 'mpa', by: 'us', text: 'MPA Request revision 1' },
      { ...onLink, kind: 'mpa', by: 'peer', text: 'MPA Reply revision 1' },
      {
        kind: 'wqe',
        device: 'a',
        qpn,
        opcode: 'SEND',
        wrId: '0x1f',
        bytes: 2,
        text: 'WQE SEND wr_id 0x1f, 2 bytes, inline, signaled',
      },
      {
        kind: 'cqe',
        device: 'a',
        qpn,
        opcode: 'SEND',
        wrId: '0x1f',
        bytes: 2,
        status: 'IBV_WC_SUCCESS',
        text: 'CQE SEND wr_id 0x1f, IBV_WC_SUCCESS, 2 bytes',
      },
      {
        ...onLink,
        kind: 'fpdu',
        by: 'us',
        opcode: 'Send',
        bytes: 2,
        text: 'Send QN 0 MSN 1 MO 0, 2 bytes, last',
      },
      { ...onLink, kind: 'end', by: 'peer', text: 'FIN' },
    ]);
    const times = records.map(({ micros }) => micros);
    expect(times).toEqual([...times].sort((one, other) => one - other));
  });

  it('reports nothing from before, and starts at a link’s current position', () => {
    const world = new World();
    const tap = world.link();
    tap.outbound(REQUEST);
    tap.inbound(REPLY);
    const sampler = world.sampler();
    tap.outbound(SEND);
    expect(sampler.end().records.map(({ kind }) => kind)).toEqual(['fpdu']);
    tap.outbound(SEND);
    expect(sampler.end().records).toHaveLength(1);
  });

  it('reports that it skips a link with markers that was open before', () => {
    const world = new World();
    const tap = world.link();
    tap.outbound(MARKED_REQUEST);
    tap.inbound(REPLY);
    expect(world.sampler().end().records).toMatchObject([
      { kind: 'error', text: 'left out: open before, and with markers' },
    ]);
  });

  it('is full once it has the requested number of records, and counts the rest', () => {
    const world = new World();
    const sampler = world.sampler({ limit: 3 });
    world.send(1);
    expect(world.fullTimes).toBe(0);
    world.send(2);
    world.send(3);
    const { records, lost } = sampler.end();
    expect([records.length, lost, world.fullTimes]).toEqual([3, 3, 1]);
  });

  it('is narrowed to a device and a queue pair, with its links', () => {
    const world = new World();
    const { qpn } = world.rig.qp;
    world.queuePair = undefined;
    const [mine, others, elsewhere] = [
      { device: 'a', qp: qpn },
      { qp: qpn + 1 },
      { device: 'b' },
    ].map((request) => world.sampler(request));
    const tap = world.link();
    tap.outbound(REQUEST);
    world.queuePair = { device: 'a', qpn };
    tap.inbound(REPLY);
    world.send(1);
    const kinds = [mine, others, elsewhere].map((each) =>
      each?.end().records.map(({ kind }) => kind),
    );
    expect(kinds).toEqual([['mpa', 'mpa', 'wqe', 'cqe'], [], []]);
  });

  it('reports a link that cannot be read, and continues with others', () => {
    const world = new World();
    const sampler = world.sampler();
    const tap = world.link();
    tap.outbound(bytesOf('00'.repeat(20)));
    tap.inbound(REPLY);
    tap.closed(true);
    expect(sampler.end().records).toMatchObject([
      { kind: 'error', by: 'us', text: expect.stringMatching(/^no MPA request: /) },
      { kind: 'mpa', by: 'peer' },
      { kind: 'end', text: 'RST' },
    ]);
  });
});
