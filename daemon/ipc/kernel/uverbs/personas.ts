/** Which persona a device has. */
import type { DeviceTransport } from '#contract/verbs/attributes';
import type { Persona } from './persona.ts';
import { RXE } from './rxe/persona.ts';
import { SIW } from './siw/persona.ts';

/** The persona by the protocol that a device speaks. */
export const PERSONAS: Readonly<Record<DeviceTransport, Persona>> = {
  iwarp: SIW,
  roce: RXE,
};
