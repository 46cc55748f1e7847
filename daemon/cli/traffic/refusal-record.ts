/** Refusals in the daemon's records for watchers, and in the output of `iwarpd trace`. */
import { decodeValue, IpcFormatError } from '#contract/protocol/ipc-value';
import { type Refusal, refusalLine } from '#contract/protocol/refusals';

/** Decodes the body of a `refusal` record. Throws `IpcFormatError`. */
export function refusalOf(body: Uint8Array): Refusal {
  const value: unknown = decodeValue(body);
  if (!isRefusal(value)) throw new IpcFormatError('a refusal without its program, verb or reason');
  return value;
}

function isRefusal(value: unknown): value is Refusal {
  if (typeof value !== 'object' || value === null) return false;
  const texts = ['program', 'verb', 'code', 'sentence'] as const;
  return (
    texts.every((name: keyof Refusal) => typeof Reflect.get(value, name) === 'string') &&
    typeof Reflect.get(value, 'pid') === 'number'
  );
}

/** The source in the style of other trace lines: `roce0 QP 17`, `roce0`, or ''. */
export function refusalSource({ device, objects }: Refusal): string {
  const qpn = objects?.['qp'];
  if (device === undefined) return '';
  return qpn === undefined ? device : `${device} QP ${qpn}`;
}

/** `REFUSAL pp[4242] ibv_modify_qp INIT to RTR: EINVAL: …`. */
export function refusalText(refusal: Refusal): string {
  const { program, pid } = refusal;
  return `REFUSAL ${program === '' ? '?' : program}[${pid}] ${refusalLine(refusal)}`;
}
