/** What a program is told of failed work and of asynchronous events, as its user's refusals keep it. */
import { AsyncEventType } from '../../../verbs-api/contract/verbs/enums.ts';
import type { DeviceAsyncEvent, DeviceFailure } from '../../host/device-backend.ts';
import type { RefusalReport } from '../../refusals/refusals.ts';
import { failureNames, flushNames } from '../../rnic/failure-sentence.ts';
import { QP } from '../../rnic/queue-pair.ts';

/** A report, without the program. */
export type OwnReport = Omit<RefusalReport, 'pid' | 'uid' | 'program'>;

/** Events that the program asked for, or that follow what it did. */
const NORMAL_EVENTS: readonly AsyncEventType[] = [
  AsyncEventType.commEst,
  AsyncEventType.sqDrained,
  AsyncEventType.portActive,
  AsyncEventType.gidChange,
];

const EVENT_NAMES = new Map<number, string>(
  Object.entries(AsyncEventType).map(([name, type]) => [type, name]),
);

/** `script`: the program is one in TypeScript, else in C. */
export function failureReport(
  { qp, work, sentence }: DeviceFailure,
  device: string,
  script: boolean,
): OwnReport {
  const { qpn } = qp;
  const names = work === undefined ? flushNames(qpn, script) : failureNames(work, qpn, script);
  return { api: 'completion', ...names, sentence, device, objects: { qp: qpn } };
}

/** Undefined for an event that needs no explanation. */
export function eventReport(
  { event, element, text }: DeviceAsyncEvent,
  device: string,
  script: boolean,
): OwnReport | undefined {
  const qp = element instanceof QP ? element : undefined;
  const closes = event === AsyncEventType.qpLastWqeReached && qp?.cause?.kind === 'ended';
  if (closes || NORMAL_EVENTS.includes(event)) return undefined;
  const name = EVENT_NAMES.get(event) ?? String(event);
  return {
    api: 'event',
    verb: script ? 'asyncEvents' : 'ibv_get_async_event',
    code: script ? name : `IBV_EVENT_${name.replace(/[A-Z]/g, '_$&').toUpperCase()}`,
    sentence: text,
    device,
    ...(qp === undefined ? {} : { objects: { qp: qp.qpn } }),
  };
}
