/** Makes a reusable `OutboundMessage`. */
import { OutboundKind, type OutboundMessage } from './wire-port.ts';

/** An empty message for `WireUser.nextMessage` to fill in. */
export function makeOutboundMessage(): OutboundMessage {
  return {
    kind: OutboundKind.none,
    slot: 0,
    lengthBytes: 0,
    solicited: false,
    remoteStag: 0,
    remoteToHi: 0,
    remoteToLo: 0,
    sinkStag: 0,
    sinkToHi: 0,
    sinkToLo: 0,
    invalidateStag: 0,
    immediateHi: 0,
    immediateLo: 0,
    address: undefined,
    remoteQpn: 0,
    qkey: 0,
    atomicOperation: 0,
    atomicOperandHi: 0,
    atomicOperandLo: 0,
    atomicOperandMaskHi: 0,
    atomicOperandMaskLo: 0,
    atomicCompareHi: 0,
    atomicCompareLo: 0,
    atomicCompareMaskHi: 0,
    atomicCompareMaskLo: 0,
  };
}
