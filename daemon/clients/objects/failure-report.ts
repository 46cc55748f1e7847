/** Failed work and asynchronous events as the refusals of a program's user record them. */
import { AsyncEventType } from '#contract/verbs/enums';
import type { DeviceAsyncEvent, DeviceFailure } from '#daemon/host/served-device';
import type { RefusalReport } from '#daemon/refusals/refusals';
import { failureNames, flushNames } from '#daemon/rnic/failure-sentence';
import { QP } from '#daemon/rnic/queue-pair';

export type OwnReport = Omit<RefusalReport, 'pid' | 'uid' | 'program'>;

/** Events that the program asked for, or that follow from its actions. */
const NORMAL_EVENTS: readonly AsyncEventType[] = [
  AsyncEventType.commEst,
  AsyncEventType.sqDrained,
  AsyncEventType.portActive,
  AsyncEventType.gidChange,
];

const EVENT_NAMES = new Map<number, string>(
  Object.entries(AsyncEventType).map(([name, type]) => [type, name]),
);

/** `script`: spell names for a TypeScript program, otherwise for C. */
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
  { event, object, text }: DeviceAsyncEvent,
  device: string,
  script: boolean,
): OwnReport | undefined {
  const qp = object instanceof QP ? object : undefined;
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
