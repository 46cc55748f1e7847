/** The persona for the connections of each kind of device. */
import type { DeviceTransport } from '#contract/verbs/attributes';
import { INFINIBAND } from './ib-persona.ts';
import { IWARP } from './iwarp-persona.ts';
import type { CmPersona } from './persona.ts';

/** By the protocol of the device. */
export const CM_PERSONAS: Readonly<Record<DeviceTransport, CmPersona>> = {
  iwarp: IWARP,
  roce: INFINIBAND,
};
