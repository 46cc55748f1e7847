/** Reusable records in which a wire passes inbound messages to a queue pair. */
import type { AtomicAccess, InboundMessage } from './wire-port.ts';

export function makeInboundMessage(): InboundMessage {
  return {
    written: false,
    sourceQpn: 0,
    lengthBytes: 0,
    solicited: false,
    invalidates: false,
    invalidateStag: 0,
    hasImmediate: false,
    immediateHi: 0,
    immediateLo: 0,
  };
}

export function makeAtomicAccess(): AtomicAccess {
  return {
    operation: 0,
    stag: 0,
    toHi: 0,
    toLo: 0,
    operandHi: 0,
    operandLo: 0,
    operandMaskHi: 0,
    operandMaskLo: 0,
    compareHi: 0,
    compareLo: 0,
    compareMaskHi: 0,
    compareMaskLo: 0,
    originalHi: 0,
    originalLo: 0,
  };
}
