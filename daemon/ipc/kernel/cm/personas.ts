/** Which persona the connections of a device have. */
import type { DeviceTransport } from '#contract/verbs/attributes';
import { INFINIBAND } from './ib-persona.ts';
import { IWARP } from './iwarp-persona.ts';
import type { CmPersona } from './persona.ts';

/** The persona by the protocol that a device speaks. */
export const CM_PERSONAS: Readonly<Record<DeviceTransport, CmPersona>> = {
  iwarp: IWARP,
  roce: INFINIBAND,
};
