/** Schemas of faults: valid requests, and which fields go with which kind. */
import { z } from 'zod';
import {
  FAULT_KINDS,
  FAULT_MS_MAX,
  FAULT_OPCODES,
  FAULT_PARAMETERS,
  FAULT_PLACES,
  FAULT_SCOPES,
  FAULT_SYNDROMES,
  FAULT_VERBS,
  type FaultKind,
  type FaultSpec,
  type FaultStatus,
  faultKind,
  faultTransport,
  PACKET_OPCODES,
} from '#contract/protocol/faults';
import { ERRNO, type ErrnoCode } from '#contract/verbs/errors';

const COUNT_MAX = 2 ** 31 - 1;
const SEED_MAX = 2 ** 32 - 1;
const QP_NUMBER_MAX = 2 ** 24 - 1;
const DEPTH_MAX = 0x3ffe;
const NAME_MAX = 63;

const count = z.int().positive().max(COUNT_MAX);
const kinds = Object.keys(FAULT_KINDS) as FaultKind[];
const errnos = Object.keys(ERRNO) as ErrnoCode[];

const specFields = z.strictObject({
  kind: z.enum(kinds),
  device: z.string().min(1).max(NAME_MAX).exactOptional(),
  qp: z.int().positive().max(QP_NUMBER_MAX).exactOptional(),
  peer: z.string().min(1).max(NAME_MAX).exactOptional(),
  opcode: z.enum(FAULT_OPCODES).exactOptional(),
  direction: z.enum(['in', 'out']).exactOptional(),
  pid: z.int().nonnegative().max(COUNT_MAX).exactOptional(),
  verb: z.enum(FAULT_VERBS).exactOptional(),
  nth: count.exactOptional(),
  every: count.exactOptional(),
  once: z.boolean().exactOptional(),
  probability: z.number().gt(0).max(1).exactOptional(),
  seed: z.int().nonnegative().max(SEED_MAX).exactOptional(),
  ms: z.int().positive().max(FAULT_MS_MAX).exactOptional(),
  bytesPerSecond: count.exactOptional(),
  bytes: count.exactOptional(),
  afterBytes: z.int().nonnegative().max(Number.MAX_SAFE_INTEGER).exactOptional(),
  syndrome: z.enum(FAULT_SYNDROMES).exactOptional(),
  errno: z.enum(errnos).exactOptional(),
  ird: z.int().nonnegative().max(DEPTH_MAX).exactOptional(),
  ord: z.int().nonnegative().max(DEPTH_MAX).exactOptional(),
});

export const faultSpec: z.ZodType<FaultSpec, FaultSpec> = specFields.superRefine(
  (spec, context) => {
    const wrong = wrongField(spec);
    if (wrong === undefined) return;
    context.addIssue({ code: 'custom', path: [wrong.field], message: wrong.reason });
  },
);

export const faultStatus: z.ZodType<FaultStatus> = z.strictObject({
  id: z.int().positive(),
  spec: specFields,
  matched: z.int().nonnegative(),
  fired: z.int().nonnegative(),
});

export const faultId = z.strictObject({ id: count });

/** The first field not allowed with the others. */
function wrongField(spec: FaultSpec): { field: string; reason: string } | undefined {
  const { kind } = spec;
  const { place, needs, takes } = faultKind(kind);
  const scopes: readonly string[] = FAULT_PLACES[place];
  for (const field of FAULT_SCOPES) {
    if (spec[field] === undefined || scopes.includes(field)) continue;
    return { field, reason: `does not apply to ${kind}, which takes ${scopes.join(', ')}` };
  }
  for (const field of FAULT_PARAMETERS) {
    const needed = needs.includes(field);
    if (needed && spec[field] === undefined) {
      return { field, reason: `required by ${kind}` };
    }
    if (spec[field] !== undefined && !needed && !takes.includes(field)) {
      return { field, reason: `does not apply to ${kind}` };
    }
  }
  return wrongOfKind(spec) ?? wrongTrigger(spec);
}

function wrongOfKind(spec: FaultSpec): { field: string; reason: string } | undefined {
  const { kind, opcode, direction } = spec;
  if (kind === 'mpa-depths' && spec.ird === undefined && spec.ord === undefined) {
    return { field: 'ird', reason: 'mpa-depths requires ird, ord or both' };
  }
  if (faultTransport(kind) === 'roce') {
    if (opcode === undefined || PACKET_OPCODES.includes(opcode)) return undefined;
    const known = PACKET_OPCODES.join(', ');
    return { field: 'opcode', reason: `${kind} takes opcodes of RoCE packets only: ${known}` };
  }
  if (opcode === 'acknowledge' && faultTransport(kind) === 'iwarp') {
    return { field: 'opcode', reason: `${kind} takes opcodes of iWARP only` };
  }
  if (opcode !== undefined && direction === 'in') {
    return { field: 'opcode', reason: 'opcodes are known for sent bytes only: use direction out' };
  }
  const startup = opcode === 'mpa-request' || opcode === 'mpa-reply';
  const { place } = faultKind(kind);
  if (startup && (place === 'fpdu' || place === 'event')) {
    return { field: 'opcode', reason: `${kind} takes opcodes of FPDUs only` };
  }
  if (opcode !== undefined && !startup && place === 'depths') {
    return {
      field: 'opcode',
      reason: 'must be mpa-request or mpa-reply: only these contain depths',
    };
  }
  return undefined;
}

function wrongTrigger(spec: FaultSpec): { field: string; reason: string } | undefined {
  if (spec.nth !== undefined && spec.every !== undefined) {
    return { field: 'every', reason: 'give nth or every, not both' };
  }
  if (spec.seed !== undefined && spec.probability === undefined) {
    return { field: 'seed', reason: 'requires probability' };
  }
  return undefined;
}
