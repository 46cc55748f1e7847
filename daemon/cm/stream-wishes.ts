/** What a connection asks of its stream: the device's defaults and the consumer's own words. */
import type { WireOptions } from '../../verbs-api/contract/provider.ts';
import type { FpduSizePolicy, StreamOptions } from '../engine/stream-api.ts';
import type { CmDevice } from './cm-types.ts';

/** Private Data that fits a Request or Reply: RFC 5044 §7.1.1, less the word of RFC 6581 §9. */
export const PRIVATE_DATA_MAX_BYTES = 512;
/** EMPA-9-02: enhanced connection data takes four of them. */
export const ENHANCED_PRIVATE_DATA_MAX_BYTES = 508;

/** Depths wished for one connection, within the device's ceilings. */
export interface Depths {
  readonly ird: number;
  readonly ord: number;
}

/** The stream options of a connection of `device`, with `wire` overriding its defaults. */
export function streamOptions(
  device: CmDevice,
  wire: WireOptions | undefined,
  depths: Depths,
  emssBytes: number,
): StreamOptions {
  const defaults = device.wire;
  return {
    mpaRevision: wire?.mpaRevision ?? defaults.mpaRevision,
    enhancedSupported: defaults.enhancedSupported,
    crcRequested: wire?.crc ?? defaults.crcRequested,
    markersRequested: wire?.markers ?? defaults.markersRequested,
    peerToPeer: wire?.peerToPeer ?? defaults.peerToPeer,
    rtrKinds: defaults.rtrKinds,
    ird: depths.ird,
    ord: depths.ord,
    irdMax: device.irdMax,
    ordMax: device.ordMax,
    emssBytes,
    fpduSize: fpduSizePolicy(wire?.fpduSize) ?? defaults.fpduSize,
    startupTimeoutMicros: defaults.startupTimeoutMicros,
    closeTimeoutMicros: defaults.closeTimeoutMicros,
    nudgeDelayMicros: defaults.nudgeDelayMicros,
  };
}

function fpduSizePolicy(choice: WireOptions['fpduSize']): FpduSizePolicy | undefined {
  if (choice === undefined) return undefined;
  return typeof choice === 'number' ? { kind: 'fixed', mulpduBytes: choice } : { kind: choice };
}
