/** A queue pair of RC, UC or UD gets any packets in any order: its own device stays unchanged. */
import { describe, expect, it } from 'vitest';
import { QPState, QPType } from '#contract/verbs/enums';
import { OutboundKind } from '#daemon/rnic/wire-port';
import {
  opcodeTraits,
  operationOf,
  PacketOperation,
  Service,
  Trait,
} from '#daemon/roce/wire/opcode';
import { Packet, packetBytes, writeHeaders } from '#daemon/roce/wire/packet';
import { isPathMtu } from '#daemon/roce/wire/path-mtu';
import { addressAt, REMOTE_KEY } from '#test/support/model-user';
import { Prng } from '#test/support/prng';
import { pathOf, TransportSide } from '#test/support/transport-pair';

const MEMORY_BYTES = 65_536;
/** The memory that peers may access with the right key in this test: the second half. */
const OPEN_AT = MEMORY_BYTES / 2;
const PACKETS = 400;
const SEEDS = 60;
/** Answers to one packet: a Read of all memory at the smallest path MTU, and acknowledgments. */
const ANSWERS_MAX = MEMORY_BYTES / 256 + 8;

function anyOpcode(prng: Prng): number {
  for (;;) {
    const opcode = prng.below(256);
    if (opcodeTraits(opcode) !== 0) return opcode;
  }
}

/** A packet that the queue pair accepts, so that it does not fail at once. */
function fairPacket(prng: Prng, psn: number, service: Service): Uint8Array {
  const packet = new Packet();
  const write = service !== Service.ud && prng.oneIn(2);
  packet.opcode = service | (write ? PacketOperation.writeOnly : PacketOperation.sendOnly);
  packet.destQpn = 0x55;
  packet.psn = psn;
  packet.ackRequest = true;
  packet.payloadLength = 1 + prng.below(256);
  packet.rkey = REMOTE_KEY;
  const { remoteToHi, remoteToLo } = addressAt(OPEN_AT + prng.below(4096));
  packet.vaHi = remoteToHi;
  packet.vaLo = remoteToLo;
  packet.dmaLength = packet.payloadLength;
  packet.qkey = 0x1111;
  const bytes = new Uint8Array(packetBytes(packet)).fill(0x5c);
  writeHeaders(bytes, 0, packet);
  return bytes;
}

/** A packet that parses, of any kind, near the PSN that is expected. */
function anyPacket(prng: Prng, psn: number): Uint8Array {
  const packet = new Packet();
  const opcode = anyOpcode(prng);
  const traits = opcodeTraits(opcode);
  const mtu = 256 << prng.below(5);
  packet.opcode = opcode;
  packet.solicited = prng.oneIn(2);
  packet.ackRequest = prng.oneIn(2);
  packet.destQpn = 0x55;
  packet.psn = prng.oneIn(4) ? prng.below(2 ** 24) : (psn + prng.below(5) - 2) & 0xff_ffff;
  const right = prng.oneIn(2);
  packet.rkey = right ? REMOTE_KEY : prng.below(2 ** 32);
  // With the right key only open ranges; with a wrong one any.
  const { remoteToHi, remoteToLo } = addressAt(
    right ? OPEN_AT + prng.below(4096) : prng.below(OPEN_AT),
  );
  packet.vaHi = remoteToHi;
  packet.vaLo = remoteToLo;
  packet.dmaLength = prng.oneIn(8) ? prng.below(2 ** 32) : prng.below(8192);
  packet.qkey = prng.oneIn(2) ? 0x1111 : prng.below(2 ** 32);
  packet.syndrome = [0x1f, 0x2c, 0x60, 0x61, 0x62, 0x63, 0x00][prng.below(7)] ?? 0;
  packet.msn = prng.below(2 ** 24);
  packet.swapAddLo = prng.below(2 ** 32);
  packet.payloadLength = 0;
  if ((traits & Trait.payload) !== 0) {
    const ends = (traits & Trait.ends) !== 0;
    packet.payloadLength = ends ? 1 + prng.below(4096) : mtu;
    expect(ends || isPathMtu(packet.payloadLength)).toBe(true);
  }
  const bytes = new Uint8Array(packetBytes(packet)).fill(0x5c);
  writeHeaders(bytes, 0, packet);
  return bytes;
}

describe.each([
  ['RC', QPType.rc, Service.rc],
  ['UC', QPType.uc, Service.uc],
  ['UD', QPType.ud, Service.ud],
] as const)('any packets into a queue pair of %s', (_, type, service) => {
  it('change only what peers may write, and cause bounded replies', () => {
    let [placed, arrived] = [0, 0];
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const prng = new Prng(seed);
      const side = new TransportSide(MEMORY_BYTES, { type });
      const { user, wire } = side;
      wire.modified(pathOf(), QPState.RTR, 0);
      wire.modified(pathOf(), QPState.RTS, 0);
      user.memory.fill(0x11);
      for (let count = 0; count < 3; count += 1) user.receives.push(5000);
      const sink = new Uint8Array(600);
      const work = { kind: OutboundKind.readRequest, remoteStag: REMOTE_KEY, ...addressAt(0) };
      if (type === QPType.rc) user.work.push({ id: 1, message: work, sink });
      let now = 0;
      for (let count = 0; count < PACKETS && side.failure === undefined; count += 1) {
        now += prng.below(2000);
        const psn = count < 3 || prng.oneIn(2) ? wire.rqPsn : wire.sqPsn;
        const fair = count < 3 || prng.oneIn(2);
        side.receive(fair ? fairPacket(prng, psn, service) : anyPacket(prng, psn), now);
        expect(side.pollAll(now).length, `seed ${seed}`).toBeLessThanOrEqual(ANSWERS_MAX);
        if (wire.nextDeadline() <= now) side.deadline(now);
      }
      const closed = user.memory.subarray(0, OPEN_AT);
      expect(
        closed.every((byte) => byte === 0x11),
        `seed ${seed}`,
      ).toBe(true);
      expect(user.arrivals.length, `seed ${seed}`).toBeLessThanOrEqual(3);
      if (user.memory.subarray(OPEN_AT).some((byte) => byte === 0x5c)) placed += 1;
      arrived += user.arrivals.length;
    }
    // Some packets were accepted.
    if (type !== QPType.ud) expect(placed).toBeGreaterThan(0);
    expect(arrived).toBeGreaterThan(0);
  });
});

it('has packets of every operation', () => {
  const prng = new Prng(1);
  const seen = new Set<number>();
  for (let count = 0; count < 5000; count += 1) seen.add(operationOf(anyOpcode(prng)));
  expect(Object.values(PacketOperation).every((operation) => seen.has(operation))).toBe(true);
});
