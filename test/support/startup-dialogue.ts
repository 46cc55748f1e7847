/** Helpers for dialogues with the MPA startup machine. */
import { Startup, type StartupEffect } from '#daemon/iwarp/engine/startup';
import type { StreamOptions } from '#daemon/iwarp/engine/stream-api';
import { bytesOf, concat, NO_BYTES } from './hex.ts';

export const REQ_KEY = '4d504120494420526571204672616d65';
export const REP_KEY = '4d504120494420526570204672616d65';
export const TIMEOUT_MICROS = 5_000_000;
const defaultOptions: StreamOptions = {
  mpaRevision: 2,
  enhancedSupported: true,
  crcRequested: true,
  markersRequested: false,
  peerToPeer: false,
  rtrKinds: { send: false, write: true, read: true },
  ird: 16,
  ord: 16,
  irdMax: 128,
  ordMax: 128,
  emssBytes: 1448,
  fpduSize: { kind: 'emss' },
  startupTimeoutMicros: TIMEOUT_MICROS,
  closeTimeoutMicros: TIMEOUT_MICROS,
};

export const revision1: Partial<StreamOptions> = { mpaRevision: 1 };

/** An initiator whose Request was sent, at time 1000. Its Request is the first effect. */
export function initiator(
  options: Partial<StreamOptions> = {},
  privateData: Uint8Array = NO_BYTES,
): Startup {
  const startup = new Startup({ ...defaultOptions, ...options });
  startup.connect(privateData, 1000);
  return startup;
}

/** A responder that has waited since time 1000. */
export function responder(options: Partial<StreamOptions> = {}): Startup {
  const startup = new Startup({ ...defaultOptions, ...options });
  startup.listen(1000);
  return startup;
}

/** Feeds bytes given as hexadecimal text; returns how many were left over. */
export function feed(startup: Startup, ...hex: readonly string[]): number {
  const bytes = concat(...hex.map(bytesOf));
  return bytes.length - startup.handleBytes(bytes, 0, bytes.length);
}

export function effects(startup: Startup): StartupEffect[] {
  const list: StartupEffect[] = [];
  for (let e = startup.pollEffect(); e !== undefined; e = startup.pollEffect()) list.push(e);
  return list;
}

/** The one effect of type `type` among those due; throws when there is none. */
export function only<T extends StartupEffect['type']>(
  startup: Startup,
  type: T,
): Extract<StartupEffect, { type: T }> {
  const due = effects(startup);
  const found = due.filter((e): e is Extract<StartupEffect, { type: T }> => e.type === type);
  if (found.length !== 1 || found[0] === undefined) {
    throw new Error(`expected one ${type}, got: ${due.map((e) => e.type).join(', ')}`);
  }
  return found[0];
}
