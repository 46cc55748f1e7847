import { expect, it } from 'vitest';
import { IpcFormatError } from '#contract/protocol/ipc-value';
import {
  emitTappedPacket,
  parseTappedPacket,
  type TappedPacket,
} from '#contract/protocol/packet-records';
import type { TapFilter } from '#contract/protocol/tap-records';
import { PacketHub } from '#daemon/capture/packet-hub';
import { TapSelection } from '#daemon/capture/tap-selection';
import { datagramOf, packetOf } from '#test/support/roce-packets';

const PACKET: TappedPacket = {
  sender: { device: 'left', qpn: 17 },
  receiver: { device: 'right', qpn: 0xabcdef },
  bytes: datagramOf(packetOf(0x04), 'ipv4'),
};
const text = (word: string) => new TextEncoder().encode(word);

it('is watched while there is a watcher, and passes each packet to all of them', () => {
  const hub = new PacketHub();
  expect(hub.watched).toBe(false);
  const seen: string[] = [];
  const stops = ['a', 'b'].map((name) =>
    hub.watch({ packet: ({ sender }) => seen.push(`${name} ${sender?.qpn}`) }),
  );
  expect(hub.watched).toBe(true);
  hub.packet(PACKET);
  stops[0]?.();
  hub.packet(PACKET);
  expect(seen).toEqual(['a 17', 'b 17', 'b 17']);
  stops[1]?.();
  expect(hub.watched).toBe(false);
});

it.each<[TapFilter, boolean]>([
  [{}, true],
  [{ device: 'left' }, true],
  [{ device: 'right' }, true],
  [{ device: 'other' }, false],
  [{ qps: [0xabcdef] }, true],
  [{ device: 'left', qps: [0xabcdef] }, false],
  [{ address: '10.1.0.2' }, true],
  [{ address: '10.1.0.3' }, false],
  [{ port: 4791 }, true],
  [{ port: 49_152 }, true],
  [{ port: 4790 }, false],
  [
    {
      links: [{ localAddress: '10.1.0.1', localPort: 1, remoteAddress: '10.1.0.2', remotePort: 2 }],
    },
    false,
  ],
])('a packet matches %j: %s', (filter, wanted) => {
  expect(new TapSelection(filter).wantsPacket(PACKET)).toBe(wanted);
});

it('a packet to a group matches by its sender only', () => {
  const packet = { ...PACKET, receiver: undefined };
  expect(new TapSelection({ device: 'left' }).wantsPacket(packet)).toBe(true);
  expect(new TapSelection({ device: 'right' }).wantsPacket(packet)).toBe(false);
});

it('a packet of another host matches by its receiver only', () => {
  const packet = { ...PACKET, sender: undefined };
  expect(new TapSelection({ device: 'left' }).wantsPacket(packet)).toBe(false);
  expect(new TapSelection({ device: 'right' }).wantsPacket(packet)).toBe(true);
});

it.each([PACKET, { ...PACKET, receiver: undefined }, { ...PACKET, sender: undefined }])(
  'a record is read as it was written',
  (packet) => {
    const [from = '', to = ''] = [packet.sender?.device, packet.receiver?.device];
    expect(parseTappedPacket(emitTappedPacket(packet, text(from), text(to)))).toEqual(packet);
  },
);

it.each([
  new Uint8Array(11),
  Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
  Uint8Array.of(1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 97),
  Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0, 1, 200, 0, 0, 97),
  Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 97),
])('a malformed record is refused: %s', (body) => {
  expect(() => parseTappedPacket(body)).toThrow(IpcFormatError);
});
