/**
 * Converts attributes with which programs connect queue pairs between the verbs and the device.
 *
 * A program may send any number: each is checked against its field in the kernel's structs. The
 * device checks the rest.
 */
import type { AHAttributes } from '#contract/verbs/attributes';
import type { MTU, QPState } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import { gidBytes, gidText } from '#contract/verbs/gid';
import {
  QP_ATTRIBUTES,
  QP_NUMBERS,
  QPAttribute,
  type QPAttributes,
  type QPModification,
} from '#contract/verbs/qp-attributes';
import type { PathAttributes } from '#daemon/rnic/ib-port';
import type {
  AddressVector,
  QPModification as DeviceModification,
} from '#daemon/rnic/qp-attributes';

const UINT8_MAX = 0xff;
const UINT20_MAX = 0xf_ffff;
const SL_MAX = 15;
/** The default of ping and traceroute as well. */
const HOPS_DEFAULT = 64;
const PORT = 1;

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
  for (const name of QP_NUMBERS) {
    const value = attributes[name];
    if (value === undefined) continue;
    const { min, max } = QP_ATTRIBUTES[name];
    set(name, inRange(name, value, min, max));
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
  throw invalid(`${name} must be ${range}, not ${String(value)}`);
}
