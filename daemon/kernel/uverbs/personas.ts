/** The persona of each kind of device. */
import type { DeviceTransport } from '#contract/verbs/attributes';
import type { Persona } from './persona.ts';
import { RXE } from './rxe/persona.ts';
import { SIW } from './siw/persona.ts';

/** By the protocol of the device. */
export const PERSONAS: Readonly<Record<DeviceTransport, Persona>> = {
  iwarp: SIW,
  roce: RXE,
};
