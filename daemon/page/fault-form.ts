/** What a form for faults has to ask for, by kind, and the fault that its answers describe. */
import { ERRNO } from '../../verbs-api/contract/errors.ts';
import {
  FAULT_KINDS,
  FAULT_OPCODES,
  FAULT_PLACES,
  FAULT_VERBS,
  type FaultKind,
  type FaultPlace,
  type FaultSpec,
  type FaultStatus,
  faultKind,
} from '../../verbs-api/contract/faults.ts';

/** A field of the form. */
export interface FaultField {
  /** As `FaultSpec` calls it. */
  readonly name: string;
  readonly label: string;
  readonly required: boolean;
  readonly input: 'number' | 'text' | 'choice';
  /** What a choice is among, behind none at all. */
  readonly choices?: readonly string[];
  readonly hint?: string;
}

/** Kinds under the headings of the README. */
export const KIND_GROUPS: readonly (readonly [string, readonly FaultKind[]])[] = groupKinds();

function groupKinds() {
  const headings: readonly (readonly [string, readonly FaultPlace[]])[] = [
    ['How octets pass', ['octets', 'direction']],
    ['An FPDU that leaves', ['fpdu']],
    ['The MPA startup', ['reply', 'request', 'depths']],
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
  bytesPerSecond: 'Octets per second',
  bytes: 'Octets of a piece',
  afterBytes: 'After octets',
  errno: 'errno',
  ird: 'IRD at most',
  ord: 'ORD at most',
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
  errno: 'choose',
};

/** Fields of parameters, then of the scope. `devices` are those that faults can be on. */
export function faultFields(kind: FaultKind, devices: readonly string[]): readonly FaultField[] {
  const { place, needs, takes } = faultKind(kind);
  const choices: Readonly<Record<string, readonly string[]>> = {
    device: devices,
    opcode: opcodesAt(place),
    direction: ['in', 'out'],
    verb: FAULT_VERBS,
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

/** Startup frames are no FPDUs, and depths are in nothing else. */
function opcodesAt(place: FaultPlace): readonly string[] {
  const isStartup = (opcode: string) => opcode.startsWith('mpa-');
  if (place === 'depths') return FAULT_OPCODES.filter(isStartup);
  if (place === 'fpdu' || place === 'event') {
    return FAULT_OPCODES.filter((opcode) => !isStartup(opcode));
  }
  return FAULT_OPCODES;
}

/** On which occasions a fault happens. */
export const TRIGGERS = [
  ['always', 'on each occasion'],
  ['once', 'once'],
  ['nth', 'on the Nth only'],
  ['every', 'on every Nth'],
  ['probability', 'with a probability'],
] as const;

/**
 * The fault that the form's answers describe. Empty answers are left out; numbers that are none stay
 * texts, which the daemon refuses with the field's name.
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

/** What narrows a fault, and when it happens, as `iwarpd fault list` tells it: `qp 5, nth 3`. */
export function faultText({ spec }: FaultStatus): string {
  const words = Object.entries(spec)
    .filter(([name, value]) => name !== 'kind' && value !== undefined && value !== false)
    .map(([name, value]) => (value === true ? name : `${name} ${value}`));
  return words.length === 0 ? 'everywhere, on each occasion' : words.join(', ');
}
