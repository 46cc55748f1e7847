/** Stream options of a connection: the consumer's choices, or the device's defaults. */
import type { CMParameters } from '#contract/protocol/commands';
import { invalid } from '#contract/verbs/errors';
import type { WireOptions } from '#contract/verbs/provider';
import type { Depths } from '../engine/negotiation.ts';
import type { FpduSizePolicy, StreamOptions } from '../engine/stream-api.ts';
import type { CmDevice } from './cm-types.ts';

/** Private Data that fits a Request or Reply: RFC 5044 §7.1.1, less the word of RFC 6581 §9. */
const PRIVATE_DATA_MAX_BYTES = 512;
/** EMPA-9-02: enhanced connection data takes four of them. */
const ENHANCED_PRIVATE_DATA_MAX_BYTES = 508;

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

/**
 * Options of connections. One with the same options as the latest shares its object, since there
 * may be thousands.
 */
export class SharedOptions {
  #latest: StreamOptions | undefined = undefined;

  of(options: StreamOptions): StreamOptions {
    if (this.#latest === undefined || !areEqual(this.#latest, options)) this.#latest = options;
    return this.#latest;
  }
}

/** `streamOptions` makes both, so their properties have the same order. */
function areEqual(one: StreamOptions, other: StreamOptions): boolean {
  const values = Object.values(other);
  return Object.values(one).every((value, index) => value === values[index]);
}

function fpduSizePolicy(choice: WireOptions['fpduSize']): FpduSizePolicy | undefined {
  if (choice === undefined) return undefined;
  return typeof choice === 'number' ? { kind: 'fixed', mulpduBytes: choice } : { kind: choice };
}

/** Throws `VerbsError` EINVAL for more private data than a startup frame holds. */
export function checkPrivateData(privateData: Uint8Array, enhanced: boolean): void {
  const max = enhanced ? ENHANCED_PRIVATE_DATA_MAX_BYTES : PRIVATE_DATA_MAX_BYTES;
  if (privateData.length > max) {
    throw invalid(`private data is ${privateData.length} bytes long; the limit is ${max}`);
  }
}

/** The consumer's depths, or the device's. Throws `VerbsError` EINVAL. */
export function requestedDepths(device: CmDevice, parameters: CMParameters): Depths {
  const ird = parameters.responderResources ?? device.irdMax;
  const ord = parameters.initiatorDepth ?? device.ordMax;
  if (!isDepth(ird, device.irdMax) || !isDepth(ord, device.ordMax)) {
    throw invalid(
      `responderResources ${ird} (IRD) or initiatorDepth ${ord} (ORD) exceeds the device's limits of ${device.irdMax} and ${device.ordMax}`,
    );
  }
  return { ird, ord };
}

function isDepth(depth: number, max: number): boolean {
  return Number.isInteger(depth) && depth >= 0 && depth <= max;
}
