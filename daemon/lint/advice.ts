/** Judges objects of the NIC when they are destroyed. */
import { canonicalAddress, isLoopback } from '#base/address';
import { QPState, QPType } from '#contract/verbs/enums';
import { gidText } from '#contract/verbs/gid';
import { counted, hex } from '../rnic/failure-sentence.ts';
import { MR } from '../rnic/memory/memory-region.ts';
import { QP } from '../rnic/queue-pair.ts';
import { CQ } from '../rnic/queues/completion-queue.ts';
import type { Advice, Findings, LintedProgram } from './findings.ts';

/** Judges an object of a program, and records the advice in `findings`. */
export function judge(object: object, program: LintedProgram, findings: Findings): void {
  for (const advice of adviceOn(object, program)) findings.note(program, advice);
}

export function adviceOn(object: object, program: LintedProgram): readonly Advice[] {
  if (object instanceof MR) return present([unusedRegion(object)]);
  if (object instanceof CQ) return present([unpolledQueue(object, program)]);
  if (!(object instanceof QP)) return [];
  return present([
    leftInInit(object, program),
    emptyReceiveQueue(object),
    unsignaledSends(object, program),
    unusedInline(object, program),
    gidOfHost(object, program),
  ]);
}

/** For a program whose last call on a device destroyed a queue of which it had taken `events`. */
export function unacknowledgedEvents(events: number): Advice {
  const sentence =
    `ibv_destroy_cq was the last call on the device, of a queue with ${counted(events, 'completion event')}:` +
    ' it waits until each is acknowledged by ibv_ack_cq_events';
  return { rule: 'cq-events-unacked', sentence };
}

type Judgement = Advice | undefined;

function present(judgements: readonly Judgement[]): Advice[] {
  return judgements.filter((each) => each !== undefined);
}

function unusedRegion(mr: MR): Judgement {
  if (mr.used) return undefined;
  const { lengthBytes, lkey, address } = mr;
  const sentence =
    `the region of ${counted(lengthBytes, 'byte')} at ${hex(address)}, lkey ${hex(lkey)}, was never used:` +
    ' no work request and no peer touched it';
  return { rule: 'mr-unused', sentence };
}

function unpolledQueue(cq: CQ, { script }: LintedProgram): Judgement {
  if (cq.written === 0) return undefined;
  const { count: untaken, successes } = cq.untaken();
  // A program need not poll the completions that destroying a queue pair flushes.
  if (untaken < cq.written || successes === 0) return undefined;
  const poll = script ? 'poll' : 'ibv_poll_cq';
  const sentence = `the completion queue of ${counted(cq.count, 'entry', 'entries')} got ${counted(untaken, 'completion')}, and ${poll} took none`;
  const silent = cq.hasChannel && !cq.wasArmed;
  return { rule: 'cq-unpolled', sentence: silent ? sentence + NEVER_ARMED : sentence };
}

const NEVER_ARMED =
  '; it has a completion channel and was never armed by ibv_req_notify_cq, so no event came';

/** With a connection manager, the connection was refused, or never requested. */
function leftInInit({ qpn, furthest }: QP, { usesCm }: LintedProgram): Judgement {
  if (usesCm || furthest !== QPState.INIT) return undefined;
  return { rule: 'qp-in-init', sentence: `queue pair ${qpn} was moved to INIT and never to RTR` };
}

function emptyReceiveQueue({ qpn, receivesMissed, srq }: QP): Judgement {
  if (receivesMissed === 0) return undefined;
  const empty = srq === undefined ? 'its receive queue' : 'its shared receive queue';
  const times = receivesMissed === 1 ? 'once' : `${receivesMissed} times`;
  const sentence = `queue pair ${qpn}: a message found ${empty} empty, ${times}`;
  return { rule: 'rq-empty', sentence };
}

function unsignaledSends(qp: QP, { script }: LintedProgram): Judgement {
  const { longestUnsignalled, capabilities } = qp;
  const { maxSendWr } = capabilities;
  if (maxSendWr === 0 || longestUnsignalled < maxSendWr) return undefined;
  const [flag, size] = script
    ? ['SendFlag.signaled', 'maxSendWr']
    : ['IBV_SEND_SIGNALED', 'max_send_wr'];
  const sentence = `queue pair ${qp.qpn}: ${longestUnsignalled} sends in a row without ${flag}, and ${size} is ${maxSendWr}`;
  return { rule: 'sq-unsignaled', sentence };
}

function unusedInline(qp: QP, { script }: LintedProgram): Judgement {
  // The TypeScript library always requests it, and uses it where possible.
  if (script || qp.inlineAsked === 0 || qp.sendsTaken === 0 || qp.sendsInlined > 0)
    return undefined;
  const sentence = `queue pair ${qp.qpn}: max_inline_data is ${qp.inlineAsked}, and no send had IBV_SEND_INLINE`;
  return { rule: 'inline-unused', sentence };
}

/** With a connection manager, the program did not choose the GID. */
function gidOfHost({ qpn, type, source }: QP, { usesCm, script }: LintedProgram): Judgement {
  if (usesCm || type === QPType.ud || source === undefined) return undefined;
  const address = canonicalAddress(gidText(source.gid));
  if (address === undefined || !isLoopback(address)) return undefined;
  const index = script ? 'sgidIndex' : 'sgid_index';
  const sentence = `queue pair ${qpn}: ${index} ${source.index} is the GID of ${address}, which no other host reaches`;
  return { rule: 'gid-of-host', sentence };
}
