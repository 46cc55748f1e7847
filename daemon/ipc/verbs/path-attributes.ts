/**
 * Converts attributes with which programs connect queue pairs between the verbs and the device.
 *
 * A program may send any number: each is checked against its field in the kernel's structs. The
 * device checks the rest.
 */
import type { AHAttributes, QPAttributes, QPModification } from '#contract/verbs/attributes';
import { ACCESS_MASK, type MTU, type QPState } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import { gidBytes, gidText } from '#contract/verbs/gid';
import type { PathAttributes } from '#daemon/rnic/ib-port';
import {
  type AddressVector,
  type QPModification as DeviceModification,
  QPAttribute,
} from '#daemon/rnic/qp-attributes';

const UINT8_MAX = 0xff;
const UINT20_MAX = 0xf_ffff;
const UINT24_MAX = 0xff_ffff;
const UINT32_MAX = 0xffff_ffff;
const MTU_MAX = 5;
const SL_MAX = 15;
/** Maximum of a 5-bit code. */
const CODE_MAX = 31;
const RETRIES_MAX = 7;
/** The default of ping and traceroute as well. */
const HOPS_DEFAULT = 64;
const PORT = 1;

/** Numeric attributes: name and range. */
const NUMBERS = [
  ['accessFlags', 0, ACCESS_MASK],
  // The device has a single partition key.
  ['pkeyIndex', 0, 0],
  ['portNum', PORT, PORT],
  ['qkey', 0, UINT32_MAX],
  ['pathMtu', 1, MTU_MAX],
  ['destQpNum', 0, UINT24_MAX],
  ['rqPsn', 0, UINT24_MAX],
  ['sqPsn', 0, UINT24_MAX],
  ['timeout', 0, CODE_MAX],
  ['retryCnt', 0, RETRIES_MAX],
  ['rnrRetry', 0, RETRIES_MAX],
  ['minRnrTimer', 0, CODE_MAX],
  ['maxRdAtomic', 0, UINT8_MAX],
  ['maxDestRdAtomic', 0, UINT8_MAX],
] as const satisfies readonly (readonly [
  keyof QPModification & keyof typeof QPAttribute,
  number,
  number,
])[];

/** The modification that a program requests. EINVAL for a value that does not fit its field. */
export function deviceModification(
  state: QPState | undefined,
  attributes: Omit<QPModification, 'state'>,
): DeviceModification {
  let mask = 0;
  const change: Record<string, unknown> = {};
  const set = (name: keyof typeof QPAttribute, value: unknown): void => {
    mask |= QPAttribute[name];
    change[name] = value;
  };
  if (state !== undefined) set('state', state);
  if (attributes.curState !== undefined) set('curState', attributes.curState);
  for (const [name, least, most] of NUMBERS) {
    const value = attributes[name];
    if (value !== undefined) set(name, inRange(name, value, least, most));
  }
  const { ahAttr } = attributes;
  if (ahAttr !== undefined) set('ahAttr', addressVector(ahAttr));
  return { ...change, mask };
}

/** The address vector of a program. EINVAL for a malformed one. */
export function addressVector(attributes: AHAttributes): AddressVector {
  const { grh, sl = 0, portNum = PORT } = attributes;
  const { flowLabel = 0, hopLimit = HOPS_DEFAULT, trafficClass = 0 } = grh;
  return {
    dgid: gidBytes(grh.dgid),
    sgidIndex: inRange('sgidIndex', grh.sgidIndex, 0, UINT8_MAX),
    flowLabel: inRange('flowLabel', flowLabel, 0, UINT20_MAX),
    hopLimit: inRange('hopLimit', hopLimit, 0, UINT8_MAX),
    trafficClass: inRange('trafficClass', trafficClass, 0, UINT8_MAX),
    dlid: 0,
    sl: inRange('sl', sl, 0, SL_MAX),
    srcPathBits: 0,
    staticRate: 0,
    isGlobal: true,
    portNum: inRange('portNum', portNum, PORT, PORT),
  };
}

/** The path attributes of a query that the verbs know. */
export function shownPath(path: PathAttributes): Partial<QPAttributes> {
  const { draining: sqDraining, ahAttr, pathMtu, routeMtu, pathMigState, ...others } = path;
  return { ...others, sqDraining, ahAttr: shownVector(ahAttr), pathMtu: pathMtu as MTU };
}

function shownVector(vector: AddressVector): AHAttributes {
  const { sgidIndex, flowLabel, hopLimit, trafficClass, sl, portNum } = vector;
  const grh = { dgid: gidText(vector.dgid), sgidIndex, flowLabel, hopLimit, trafficClass };
  return { grh, sl, portNum };
}

function inRange(name: string, value: number, least: number, most: number): number {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  const range = least === most ? `${least}` : `${least} to ${most}`;
  throw new VerbsError('EINVAL', `${name} must be ${range}, not ${String(value)}`);
}
