import { expect, it } from 'vitest';
import { Notify } from '#contract/protocol/queue-layout';
import { QPState, QPType } from '#contract/verbs/enums';
import { adviceOn } from '#daemon/lint/advice';
import type { LintedProgram } from '#daemon/lint/findings';
import { NicRig } from '#test/support/nic-rig';
import { ProgramRig } from '#test/support/program-rig';
import { bringTo } from '#test/support/program-steps';

const PROGRAM: LintedProgram = {
  pid: 1,
  program: 'prog',
  device: 'roce0',
  script: false,
  usesCm: false,
};

/** A queue with an unpolled completion. */
function unpolled(): NicRig {
  const rig = new NicRig();
  for (const wrId of [0, 1]) rig.receives.post(wrId, [rig.piece(0, 8)]);
  rig.receive([1]);
  return rig;
}

function sentences(rig: NicRig): string[] {
  return adviceOn(rig.recvCQ, PROGRAM).map(({ sentence }) => sentence);
}

const NEVER = /took none; it has a completion channel and was never armed by ibv_req_notify_cq/;

it('mentions that an unpolled queue with a channel was never armed', () => {
  const rig = unpolled();
  expect(sentences(rig)).toEqual([expect.stringMatching(/ took none$/)]);
  rig.recvCQ.hasChannel = true;
  expect(sentences(rig)).toEqual([expect.stringMatching(NEVER)]);
});

it('does not mention it once the queue was armed, even after its event', () => {
  const rig = unpolled();
  rig.recvCQ.hasChannel = true;
  rig.recvCompletions.arm(Notify.any);
  expect(sentences(rig)).toEqual([expect.stringMatching(/ took none$/)]);
  rig.receive([1]);
  expect(rig.recvCompletions.armed).toBe(Notify.none);
  expect(sentences(rig)).toEqual([expect.stringMatching(/ took none$/)]);
});

it('is silent about a queue pair in INIT that a connection manager connects', () => {
  const qp = bringTo(new ProgramRig().createQP(QPType.rc), QPState.INIT);
  expect(adviceOn(qp, PROGRAM).map(({ rule }) => rule)).toEqual(['qp-in-init']);
  expect(adviceOn(qp, { ...PROGRAM, usesCm: true })).toEqual([]);
});
