/** The fields of the fault form for each kind, and the fault that its values describe. */
import {
  FAULT_KINDS,
  FAULT_OPCODES,
  FAULT_PLACES,
  FAULT_SYNDROMES,
  FAULT_VERBS,
  type FaultKind,
  type FaultPlace,
  type FaultSpec,
  type FaultStatus,
  faultKind,
  faultTransport,
  PACKET_OPCODES,
} from '#contract/protocol/faults';
import { ERRNO } from '#contract/verbs/errors';

export interface FaultField {
  readonly name: string;
  readonly label: string;
  readonly required: boolean;
  readonly input: 'number' | 'text' | 'choice';
  /** The options of a choice, after an empty one. */
  readonly choices?: readonly string[];
  readonly hint?: string;
}

/** Kinds under the headings of the README. */
export const KIND_GROUPS: readonly (readonly [string, readonly FaultKind[]])[] = groupKinds();

function groupKinds() {
  const headings: readonly (readonly [string, readonly FaultPlace[]])[] = [
    ['Byte stream', ['bytes', 'direction']],
    ['Sent FPDUs', ['fpdu']],
    ['RoCE packets', ['packet', 'packet-request']],
    ['MPA startup', ['reply', 'request', 'depths']],
    ['Completions', ['completion', 'notification', 'receive']],
    ['Devices and queue pairs', ['event']],
    ['Verbs', ['verb']],
  ];
  const kinds = Object.keys(FAULT_KINDS) as FaultKind[];
  return headings.map(([heading, places]) => {
    return [heading, kinds.filter((kind) => places.includes(FAULT_KINDS[kind].place))] as const;
  });
}

const LABELS: Readonly<Record<string, string>> = {
  device: 'Device',
  qp: 'QP',
  peer: 'Peer',
  opcode: 'Opcode',
  direction: 'Direction',
  pid: 'PID',
  verb: 'Verb',
  ms: 'Milliseconds',
  bytesPerSecond: 'Bytes per second',
  bytes: 'Slice size in bytes',
  afterBytes: 'After bytes',
  syndrome: 'Reason',
  errno: 'errno',
  ird: 'IRD cap',
  ord: 'ORD cap',
};

const HINTS: Readonly<Record<string, string>> = {
  device: 'any',
  qp: 'any',
  peer: 'any, or ADDRESS:PORT',
  pid: 'any',
  opcode: 'any',
  direction: 'both',
  verb: 'any',
  afterBytes: '0',
  syndrome: 'choose',
  errno: 'choose',
};

/** The fields for parameters, followed by those of the scope. `devices` are those that can have faults. */
export function faultFields(kind: FaultKind, devices: readonly string[]): readonly FaultField[] {
  const { place, needs, takes } = faultKind(kind);
  const choices: Readonly<Record<string, readonly string[]>> = {
    device: devices,
    opcode: opcodesOf(kind, place),
    direction: ['in', 'out'],
    verb: FAULT_VERBS,
    syndrome: FAULT_SYNDROMES,
    errno: Object.keys(ERRNO),
  };
  const field = (name: string, required: boolean): FaultField => {
    const among = choices[name];
    const hint = HINTS[name];
    return {
      name,
      label: LABELS[name] ?? name,
      required,
      input: among !== undefined ? 'choice' : name === 'peer' ? 'text' : 'number',
      ...(among === undefined ? {} : { choices: among }),
      ...(hint === undefined ? {} : { hint }),
    };
  };
  return [
    ...needs.map((name) => field(name, true)),
    ...takes.map((name) => field(name, false)),
    ...FAULT_PLACES[place].map((name) => field(name, false)),
  ];
}

/** Startup frames are not FPDUs or packets, only they contain depths, and only packets acknowledge. */
function opcodesOf(kind: FaultKind, place: FaultPlace): readonly string[] {
  const transport = faultTransport(kind);
  if (transport === 'roce') return PACKET_OPCODES;
  const isStartup = (opcode: string) => opcode.startsWith('mpa-');
  if (place === 'depths') return FAULT_OPCODES.filter(isStartup);
  const known = FAULT_OPCODES.filter((opcode) => {
    return transport === undefined || opcode !== 'acknowledge';
  });
  if (place === 'fpdu' || place === 'event') return known.filter((opcode) => !isStartup(opcode));
  return known;
}

export const TRIGGERS = [
  ['always', 'on each occasion'],
  ['once', 'once'],
  ['nth', 'on the Nth only'],
  ['every', 'on every Nth'],
  ['probability', 'with a probability'],
] as const;

/**
 * The fault that the form's values describe. Omits empty values; passes invalid numbers as strings,
 * which the daemon rejects with the field's name.
 */
export function faultOf(
  kind: FaultKind,
  answers: Readonly<Record<string, string>>,
  trigger: { readonly name: string; readonly value: string; readonly seed: string },
): FaultSpec {
  const spec: Record<string, unknown> = { kind };
  for (const { name, input } of faultFields(kind, [])) {
    const answer = answers[name]?.trim() ?? '';
    if (answer !== '') spec[name] = input === 'number' ? numberOf(answer) : answer;
  }
  if (trigger.name === 'once') spec['once'] = true;
  else if (trigger.name !== 'always') spec[trigger.name] = numberOf(trigger.value);
  if (trigger.name === 'probability' && trigger.seed.trim() !== '') {
    spec['seed'] = numberOf(trigger.seed);
  }
  return spec as unknown as FaultSpec;
}

function numberOf(text: string): unknown {
  const trimmed = text.trim();
  const value = Number(trimmed);
  return trimmed === '' || Number.isNaN(value) ? trimmed : value;
}

/** The scope and trigger of a fault, as in `iwarpd fault list`: `qp 5, nth 3`. */
export function faultText({ spec }: FaultStatus): string {
  const words = Object.entries(spec)
    .filter(([name, value]) => name !== 'kind' && value !== undefined && value !== false)
    .map(([name, value]) => (value === true ? name : `${name} ${value}`));
  return words.length === 0 ? 'everywhere, on each occasion' : words.join(', ');
}
