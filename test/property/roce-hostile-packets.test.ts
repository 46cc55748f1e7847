/** Any packet of a hostile peer: a wire answers, drops or fails, and keeps the rules of the port. */
import { describe, expect, it } from 'vitest';
import { QPState, QPType } from '#contract/verbs/enums';
import { OutboundKind } from '#daemon/rnic/wire-port';
import { headerBytes, Service } from '#daemon/roce/wire/opcode';
import {
  Packet,
  PacketRefusal,
  packetBytes,
  parsePacket,
  writeHeaders,
} from '#daemon/roce/wire/packet';
import { addressAt, REMOTE_KEY } from '../support/model-user.ts';
import { Prng } from '../support/prng.ts';
import { pathOf, TransportSide } from '../support/transport-pair.ts';

const SEEDS = 600;
const PACKETS = 150;
/** More pending packets than one received packet may cause: a wire must not amplify without bound. */
const ANSWERS_MAX = 20_000;
const MEMORY_BYTES = 4096;
const SERVICES = [
  [QPType.rc, Service.rc],
  [QPType.uc, Service.uc],
  [QPType.ud, Service.ud],
] as const;

/** A packet that parses, of the service or another, with plausible and impossible fields. */
function hostilePacket(prng: Prng, service: number): Uint8Array | undefined {
  const packet = new Packet();
  packet.opcode = prng.oneIn(20) ? prng.below(256) : service | prng.below(0x18);
  if (headerBytes(packet.opcode) === 0) return undefined;
  const { remoteToHi, remoteToLo } = addressAt(prng.below(MEMORY_BYTES + 100));
  packet.psn = (100 + prng.choose([prng.below(8), -prng.below(8), prng.next()])) & 0xff_ffff;
  packet.ackRequest = prng.oneIn(2);
  packet.solicited = prng.oneIn(2);
  packet.rkey = prng.oneIn(5) ? prng.next() : REMOTE_KEY;
  packet.vaHi = prng.oneIn(10) ? prng.next() : remoteToHi;
  packet.vaLo = prng.oneIn(10) ? prng.next() : remoteToLo;
  packet.dmaLength = prng.choose([0, 4, 256, 257, 600, prng.next()]);
  packet.swapAddLo = prng.below(10);
  packet.compareLo = prng.below(10);
  packet.syndrome = prng.choose([31, 31, 0x60, 0x61, 0x20, 0x2c, prng.below(256)]);
  packet.qkey = prng.oneIn(4) ? prng.next() : 0x1111;
  packet.payloadLength = prng.choose([0, 4, 88, 256, 256, 257, 512]);
  const bytes = new Uint8Array(packetBytes(packet));
  writeHeaders(bytes, 0, packet);
  const refusal = parsePacket(bytes, 0, bytes.length, new Packet());
  return refusal === PacketRefusal.none ? bytes : undefined;
}

function post(side: TransportSide, id: number, prng: Prng, type: QPType): void {
  const { send, write, readRequest, atomic } = OutboundKind;
  const kind = type === QPType.rc ? prng.choose([send, write, readRequest, atomic]) : send;
  const message = { kind, address: { dgid: new Uint8Array(16) } };
  const length = prng.below(600);
  if (kind === atomic) side.user.work.push({ id, message });
  else if (kind === readRequest) side.user.work.push({ id, message, sink: new Uint8Array(length) });
  else side.user.work.push({ id, message, payload: new Uint8Array(length) });
}

describe('hostile packets', () => {
  it.each(SERVICES)('never break a wire of type %i', (type, service) => {
    let taken = 0;
    let failed = 0;
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const prng = new Prng(seed);
      const side = new TransportSide(MEMORY_BYTES, { type });
      side.wire.modified(pathOf(), QPState.RTR, 0);
      side.wire.modified(pathOf(), QPState.RTS, 0);
      for (let index = 0; index < PACKETS && side.failure === undefined; index += 1) {
        if (prng.oneIn(3)) post(side, index, prng, type);
        if (prng.oneIn(3)) side.user.receives.push(prng.choose([0, 100, 700]));
        const bytes = hostilePacket(prng, service);
        if (bytes === undefined) continue;
        taken += 1;
        side.receive(bytes, index);
        expect(side.pollAll(index).length).toBeLessThan(ANSWERS_MAX);
        if (side.wire.nextDeadline() <= index) side.deadline(index);
      }
      if (side.failure !== undefined) failed += 1;
    }
    expect(taken).toBeGreaterThan(2 * SEEDS);
    if (type !== QPType.ud) expect(failed).toBeGreaterThan(0);
  });
});
